import { render } from 'preact';
import { App } from './app.js';
import { start } from './connection.js';

document.addEventListener('DOMContentLoaded', () => render(<App />, document.body));
start();
