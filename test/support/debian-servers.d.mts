/** Downloads a server into a cache, and returns the folder with the script that starts it. */
export function debianServer(name: string): string;
