// Opens a page below a folder in headless Chromium, and prints the first text that the page shows.
//
// node browser.mjs CHROMIUM FOLDER PAGE

import { spawn } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import os from 'node:os';
import path from 'node:path';

const [, , chromium, folder, page] = process.argv;

const TYPES = { '.html': 'text/html', '.mjs': 'text/javascript', '.wasm': 'application/wasm' };
const TIMEOUT_MS = 120_000;

/** Sends the page's text, or its first error, to this server. */
const REPORT = `<script>
const report = (text) => fetch('/', { method: 'POST', body: text });
addEventListener('error', (event) => report('error: ' + event.message));
addEventListener('unhandledrejection', (event) => report('error: ' + event.reason));
const shown = () => document.body?.innerText.trim();
const changes = { childList: true, subtree: true, characterData: true };
new MutationObserver(() => shown() && report(shown())).observe(document, changes);
</script>`;

const server = http.createServer((request, response) => {
    if (request.method === 'POST') {
        const parts = [];
        request.on('data', (part) => parts.push(part)).on('end', () => finish(Buffer.concat(parts).toString()));
        return;
    }
    const file = path.join(folder, path.normalize(decodeURIComponent(request.url)));
    if (!fs.statSync(file, { throwIfNoEntry: false })?.isFile()) return void response.writeHead(404).end();
    const extension = path.extname(file);
    const bytes = fs.readFileSync(file);
    response.writeHead(200, { 'content-type': TYPES[extension] ?? 'application/octet-stream' });
    response.end(extension === '.html' ? REPORT + bytes : bytes);
});
await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'browser-'));
const address = `http://127.0.0.1:${server.address().port}/${page}`;
// The sandbox does not start as root, as whom containers run.
const flags = ['--headless', '--no-sandbox', '--remote-debugging-port=0', `--user-data-dir=${profile}`];
// Its own group, since its other processes still write into the profile after its first has ended.
const browser = spawn(chromium, [...flags, address], { stdio: 'ignore', detached: true });
browser.on('exit', (code) => finish(`error: the browser ended with ${code}`));
setTimeout(() => finish(`error: the page shows nothing after ${TIMEOUT_MS} ms`), TIMEOUT_MS);

function finish(text) {
    console.log(text);
    const end = () => {
        fs.rmSync(profile, { recursive: true, force: true, maxRetries: 10 });
        process.exit(text.startsWith('error:') ? 1 : 0);
    };
    browser.removeAllListeners('exit');
    if (browser.exitCode !== null) end();
    browser.on('exit', end);
    process.kill(-browser.pid, 'SIGKILL');
}
