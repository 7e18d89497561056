/** A file of the page. */
export interface Asset {
  readonly type: string;
  /** Compressed with Brotli, in base64: an eighth less than with gzip. */
  readonly brotli: string;
  /** Of its content, for the browser's cache. */
  readonly hash: string;
}

/**
 * The files of the page, by name. In the package itself, so that it needs no file beside it and an application can be bundled;
 * `board/build.mjs` writes them into the compiled library. Without a build there are none.
 */
export const ASSETS: Readonly<Record<string, Asset>> = {};
