import type { Browser, Page } from 'playwright-core';
import { launchChromium, newPage } from '../lab/chromium.js';
import { cleanUpAfterTests } from '../support/leftovers.js';

export interface Opened {
  readonly page: Page;
  /**
   * Problems in the page: errors, resources that the security policy of the page blocked, and requests to other
   * origins.
   */
  readonly complaints: string[];
}

export interface View {
  readonly width?: number;
  readonly height?: number;
  readonly dark?: boolean;
  readonly user?: string;
}

/**
 * A browser with one tab for the pages of all boards. Chromium starts processes for each new tab, which takes four times as
 * much of a processor as opening a page (0.9 s and 0.2 s).
 */
export class BoardTab {
  #origin = '';
  #complaints: string[] = [];

  private constructor(
    readonly browser: Browser,
    private readonly page: Page,
  ) {
    page.on('pageerror', (error) => this.#complaints.push(error.message));
    page.on(
      'console',
      (message) => void (message.type() === 'error' && this.#complaints.push(message.text())),
    );
    page.on('request', (request) => {
      if (new URL(request.url()).origin !== this.#origin && !request.url().startsWith('data:'))
        this.#complaints.push(request.url());
    });
  }

  /** Starts the browser, which ends after the test file. */
  static async start(): Promise<BoardTab> {
    const browser = await launchChromium();
    cleanUpAfterTests(() => browser.close());
    return new BoardTab(browser, await newPage(browser));
  }

  /** Opens the page of a board in place of the page that was open before. */
  async open(url: string, { width = 1_280, height = 800, dark = false, user }: View = {}): Promise<Opened> {
    const { page } = this;
    // The page before may complain until it has gone.
    await page.goto('about:blank');
    await page.setViewportSize({ width, height });
    await page.emulateMedia({ colorScheme: dark ? 'dark' : 'light' });
    await page.setExtraHTTPHeaders(user === undefined ? {} : { 'x-user': user });
    this.#origin = new URL(url).origin;
    this.#complaints = [];
    await page.goto(url);
    return { page, complaints: this.#complaints };
  }
}
