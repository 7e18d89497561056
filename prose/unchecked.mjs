/** Files, or the beginnings of their paths, whose prose is not checked yet. */
export const unchecked = [
  'CONTRIBUTING.md',
  'README.md',
  'SECURITY.md',
  'docs/',
  'lib/board/',
  'lib/cli/',
  'lib/decorator/',
  'lib/fencing/',
  'lib/health/',
  'lib/http/',
  'lib/live/',
  'lib/metrics/',
  'lib/module/',
  'lib/telemetry/',
  'lib/testing/',
  'lib/tracing/',
];
