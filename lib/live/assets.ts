/** A file of the page. */
export interface Asset {
  readonly type: string;
  /** Compressed with gzip, in base64. */
  readonly gzip: string;
  /** Of its content, for the browser's cache. */
  readonly hash: string;
}

/**
 * The files of the page, by name. In the package itself, so that it needs no file beside it and an application can be bundled;
 * `board/build.mjs` writes them into the compiled library. Without a build there are none.
 */
export const ASSETS: Readonly<Record<string, Asset>> = {};
