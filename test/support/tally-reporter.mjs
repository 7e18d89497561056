/**
 * Prints the outcome of the whole run as the last line, `Tests: N passed, N failed`, for machines to read.
 * It only prints: Jest's exit code stays what it was. Nor may the line look better than the exit code. A test
 * file that could not be loaded has no failed tests in Jest's results, so it counts as one; and so does a run
 * that fails for any other reason.
 */
export default class TallyReporter {
  onRunComplete(_contexts, results) {
    const failures = results.numFailedTests + results.numRuntimeErrorTestSuites;
    const skipped = results.numPendingTests + results.numTodoTests;
    // On exit, because Jest's own summary comes after every reporter that is configured.
    process.once('exit', (code) => {
      const failed = failures === 0 && code !== 0 ? 1 : failures;
      const tally = `Tests: ${results.numPassedTests} passed, ${failed} failed`;
      process.stdout.write(`\n${tally}${skipped > 0 ? `, ${skipped} skipped` : ''}\n`);
    });
  }
}
