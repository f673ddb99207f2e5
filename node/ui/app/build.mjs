// Builds the dashboard: src -> ../dist, or into the folder named by --out.
//
// The same sources give the same bytes: the names of files carry a hash of their
// content, and nothing of the machine, the time or the folder gets into them. The build
// refuses what the content security policy or the promise of no outside address forbids.
import { build } from "esbuild";
import { mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { createHash } from "node:crypto";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const at = process.argv.indexOf("--out");
const out = at > 0 ? process.argv[at + 1] : join(here, "..", "dist");

// maxCompressed bounds the whole bundle, in bytes after gzip.
const maxCompressed = 300 * 1024;

const common = {
  absWorkingDir: here,
  bundle: true,
  minify: true,
  write: false,
  charset: "utf8",
  legalComments: "none",
  target: ["chrome123", "firefox128", "safari17.5"],
  jsx: "automatic",
  jsxImportSource: "preact",
  logLevel: "warning",
};

const hashed = (name, content) => {
  const [, stem, ext] = /^(.*)(\.[a-z0-9]+)$/.exec(name);
  return `${stem}-${createHash("sha256").update(content).digest("hex").slice(0, 10)}${ext}`;
};

const files = new Map(); // path in dist -> content
const asset = (name, content) => {
  const path = `assets/${hashed(name, content)}`;
  files.set(path, content);
  return path;
};

async function bundle(entry, options = {}) {
  const result = await build({ ...common, ...options, entryPoints: [entry] });
  return Buffer.from(result.outputFiles[0].contents);
}

await refuse();
const worker = asset("flow.js", await bundle("src/flow/worker.ts", { format: "esm" }));
const script = asset("app.js", await bundle("src/main.tsx", { format: "esm", define: { FLOW_WORKER: JSON.stringify(`/ui/${worker}`) } }));
const style = asset("app.css", await bundle("src/style/main.css"));
const icon = asset("icon.svg", await readFile(join(here, "src/style/icon.svg")));
const index = (await readFile(join(here, "src/index.html"), "utf8"))
  .replace("{script}", `/ui/${script}`)
  .replace("{style}", `/ui/${style}`)
  .replace("{icon}", `/ui/${icon}`);
files.set("index.html", Buffer.from(index));

let total = 0;
const lines = [];
for (const [path, content] of [...files].sort()) {
  const size = gzipSync(content, { level: 9 }).length;
  total += size;
  lines.push(`${path.padEnd(32)} ${String(content.length).padStart(8)} ${String(size).padStart(8)} compressed`);
  for (const [address] of content.toString("utf8").matchAll(/(?:https?|wss?):\/\/[\w.-]+/g)) {
    if (address !== "http://www.w3.org") fail(`${path}: ${address}: the dashboard may not name an outside address`);
  }
}
if (total > maxCompressed) fail(`${total} bytes compressed, the limit is ${maxCompressed}`);
await rm(out, { recursive: true, force: true });
for (const [path, content] of files) {
  await mkdir(dirname(join(out, path)), { recursive: true });
  await writeFile(join(out, path), content);
}
console.log(`${lines.join("\n")}\n${"together".padEnd(41)} ${String(total).padStart(8)} compressed`);

// refuse fails if a source could turn text from peers into markup or code.
async function refuse() {
  const forbidden = /innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|javascript:|srcdoc|__html/i;
  for (const entry of await readdir(join(here, "src"), { recursive: true, withFileTypes: true })) {
    if (!/\.tsx?$/.test(entry.name)) continue;
    const path = join(entry.parentPath, entry.name);
    const found = forbidden.exec(await readFile(path, "utf8"));
    if (found) fail(`${relative(here, path)}: ${found[0]}: text must be a text node`);
  }
}

function fail(why) {
  console.error(`build: ${why}`);
  process.exit(1);
}
