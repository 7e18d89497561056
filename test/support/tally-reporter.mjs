/**
 * Prints the outcome of the whole run as the last line, `Tests: N passed, N failed`, for programs that read it. The
 * exit code of Jest stays the same. If it reports a failure, so does the line: a test file that Jest could not load
 * counts as a failed test, and so does a run that fails for another reason.
 */
export default class TallyReporter {
  onRunComplete(_contexts, results) {
    const failures = results.numFailedTests + results.numRuntimeErrorTestSuites;
    const skipped = results.numPendingTests + results.numTodoTests;
    // Jest prints its own summary after all reporters, so this line waits for the exit.
    process.once('exit', (code) => {
      const failed = failures === 0 && code !== 0 ? 1 : failures;
      const tally = `Tests: ${results.numPassedTests} passed, ${failed} failed`;
      process.stdout.write(`\n${tally}${skipped > 0 ? `, ${skipped} skipped` : ''}\n`);
    });
  }
}
