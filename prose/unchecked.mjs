/** Files, or the beginnings of their paths, whose prose is not checked yet. */
export const unchecked = ['CONTRIBUTING.md', 'README.md', 'SECURITY.md', 'docs/'];
