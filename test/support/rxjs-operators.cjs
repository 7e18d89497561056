// `rxjs/operators` of the bundle that jest.config.mjs gives to the tests as `rxjs`.
module.exports = require('rxjs').operators;
