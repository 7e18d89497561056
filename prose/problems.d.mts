export function problemsOf(file: string, text: string): Promise<string[]>;
