// Makes seqline.d.ts from the sources: one file, so that a project with TypeScript needs nothing but it beside seqline.js.
// `node tests/make_types.js` writes it, `--check` says whether the one that is there is fresh.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const WEB = path.dirname(path.dirname(fileURLToPath(import.meta.url)));

export function makeTypes() {
    const folder = mkdtempSync(path.join(tmpdir(), 'seqline-types-'));
    try {
        const bundle = path.join(folder, 'all.d.ts');
        const words = ['--allowJs', '--declaration', '--emitDeclarationOnly', '--outFile', bundle, '--module', 'amd', '--moduleResolution', 'node', '--ignoreDeprecations', '5.0'];
        const libs = ['--target', 'ES2023', '--lib', 'ES2023,DOM,DOM.Iterable,DOM.AsyncIterable', '--skipLibCheck', '--strict'];
        execFileSync(process.execPath, [path.join(WEB, 'node_modules/typescript/bin/tsc'), ...words, ...libs, '--rootDir', WEB, path.join(WEB, 'seqline.js')], { stdio: 'pipe' });
        return flatten(readFileSync(bundle, 'utf8'));
    } finally {
        rmSync(folder, { recursive: true });
    }
}

/** One module out of many: every name is unique in the sources, so that their borders can go. */
function flatten(bundle) {
    const kept = [];
    const names = new Map();
    let door = '';
    for (const [, name, body] of bundle.matchAll(/^declare module "([^"]+)" \{\n([\s\S]*?)^\}\n/gm)) {
        if (name === 'seqline') door = body;
        const lines = body.split('\n').map((line) => line.replace(/^ {4}/, ''));
        for (const line of lines) {
            if (/^(import |export \* from|export \{|export \{\};)/.test(line)) continue;
            const plain = line.replace(/^export (default )?/, '').replace(/^(class|function|const|namespace) /, 'declare $1 ').replace(/import\("[^"]+"\)\.(?=\w)/g, '');
            const alias = /^type (\w+)(?:<[^=]*>)? = (\w+)(?:<[^=]*>)?;$/.exec(plain);
            if (alias && alias[1] === alias[2]) continue;
            const made = /^(?:declare )?(?:abstract )?(?:class|function|const|type|interface) (\w+)/.exec(plain);
            if (made) {
                if (names.has(made[1]) && names.get(made[1]) !== name) throw new Error(`${made[1]} is declared in ${name} and in ${names.get(made[1])}`);
                names.set(made[1], name);
            }
            kept.push(plain);
        }
    }
    const shown = new Set([...door.matchAll(/export (?:\{ (\w+) \}|type (\w+)|function (\w+))/g)].map((one) => one[1] ?? one[2] ?? one[3]));
    for (const [, list] of door.matchAll(/export \{ ([^}]+) \} from/g)) for (const one of list.split(',')) shown.add(one.trim());
    const text = kept.join('\n').replace(/\n{2,}/g, '\n').trim();
    const values = [...shown].filter((one) => new RegExp(`^declare (class|function|const) ${one}\\b`, 'm').test(text)).sort();
    const types = [...shown].filter((one) => !values.includes(one)).sort();
    return `// Made from the sources by tests/make_types.js; a test compares them.\n${text}\nexport { ${values.join(', ')} };\nexport type { ${types.join(', ')} };\n`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
    const file = path.join(WEB, 'seqline.d.ts');
    if (!process.argv.includes('--check')) writeFileSync(file, makeTypes());
    else if (readFileSync(file, 'utf8') !== makeTypes()) {
        console.error('seqline.d.ts is stale; run: npm run types');
        process.exit(1);
    }
}
