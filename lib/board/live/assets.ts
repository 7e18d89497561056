/** A file of the board's page. */
export interface Asset {
  readonly type: string;
  /** The content, compressed with Brotli, in base64. With gzip it would be larger: Brotli saves an eighth. */
  readonly brotli: string;
  /** Hash of the content, for the cache of the browser. */
  readonly hash: string;
}

/**
 * The files of the page, by name. They are part of the code, so that the package needs no other files and an
 * application can be bundled. `board/build.mjs` writes them into the compiled library; the list is empty without a
 * build.
 */
export const ASSETS: Readonly<Record<string, Asset>> = {};
