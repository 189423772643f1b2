//! The walls of the house, as tests: who adds a file or reaches across rooms finds out here, with the place named.

use std::fs;
use std::path::{Path, PathBuf};

/// Longest file in lines.
const LINES_MAX: usize = 500;
/// Longest script in lines.
const SCRIPT_LINES_MAX: usize = 100;
/// Names that say nothing about what is inside.
const ATTICS: [&str; 10] = ["common", "helper", "helpers", "manager", "misc", "shared", "stuff", "util", "utilities", "utils"];
/// What each room must not name, with the reason that the plan of the house gives.
const WALLS: [(&str, &[&str], &str); 13] = [
    (
        "src/domain",
        &["async fn", "tokio", "axum", "fred::", "sqlx", "SystemTime", "Instant::", "StatusCode"],
        "rules cannot fail for outside reasons",
    ),
    (
        "src/domain",
        &["crate::redis", "crate::postgres", "crate::actions", "crate::api", "crate::contract", "crate::workers"],
        "nothing points up",
    ),
    (
        "src/contract",
        &["async fn", "tokio", "axum", "fred::", "sqlx", "crate::redis", "crate::postgres", "crate::actions", "crate::api"],
        "it is pure",
    ),
    (
        "src/identity",
        &["axum", "fred::", "sqlx", "crate::redis", "crate::postgres", "crate::actions", "crate::api"],
        "it only knows tokens and keys",
    ),
    (
        "src/redis",
        &["sqlx", "axum", "crate::postgres", "crate::api", "crate::contract", "crate::actions", "crate::workers"],
        "it knows no SQL, no HTTP, no wire form",
    ),
    (
        "src/postgres",
        &["fred::", "axum", "crate::redis", "crate::api", "crate::contract", "crate::actions", "crate::workers"],
        "it knows no Redis, no HTTP, no wire form",
    ),
    (
        "src/actions",
        &["axum", "StatusCode", "fred::", "sqlx", "crate::api", "crate::workers", "crate::commands"],
        "it knows no HTTP, no commands of stores",
    ),
    (
        "src/delivery",
        &["sqlx", "axum", "fred::", "crate::postgres", "crate::workers", "unbounded"],
        "it knows no Postgres and has no unbounded buffer",
    ),
    (
        "src/media",
        &["fred::", "sqlx", "axum", "crate::redis", "crate::postgres", "crate::api", "crate::contract", "crate::actions", "crate::workers"],
        "it only knows bytes and where they lie",
    ),
    ("src/workers", &["axum", "fred::", "sqlx", "hyper", "crate::api"], "it knows no HTTP"),
    (
        "src/hooks",
        &["fred::", "sqlx", "axum", "crate::redis", "crate::postgres", "crate::actions", "crate::api", "crate::workers"],
        "it knows no store, and not what its answers mean",
    ),
    (
        "src/push",
        &["fred::", "sqlx", "axum", "crate::redis", "crate::postgres", "crate::actions", "crate::api", "crate::workers"],
        "it knows no store, and not what its answers mean",
    ),
    (
        "src/embedded",
        &["fred::", "sqlx", "axum", "crate::redis", "crate::postgres", "crate::api", "crate::actions"],
        "it only knows programs and folders",
    ),
];
/// Where alone a word may stand.
const HOMES: [(&str, &[&str], &str); 10] = [
    ("fred::", &["src/redis/"], "the Redis client has one room"),
    ("sqlx", &["src/postgres/"], "SQL has one room"),
    ("axum", &["src/api/", "src/ops.rs"], "HTTP has one room, and operations"),
    ("object_store", &["src/media/"], "places of pictures have one room"),
    ("image::", &["src/media/"], "decoders have one room"),
    // As a format string spells the hash tag of a shard, a user partition, a gateway.
    (":{{s", &["src/redis/keys.rs"], "keys are spelled once"),
    (":{{u", &["src/redis/keys.rs"], "keys are spelled once"),
    (":{{g", &["src/redis/keys.rs"], "keys are spelled once"),
    (
        "reqwest",
        &["src/hooks/outside_call.rs", "src/push/deliver.rs", "src/identity/key_source.rs", "src/commands/load/"],
        "calls to the outside have their doors",
    ),
    ("env::var", &["src/settings.rs"], "settings are read in one place"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below these folders with one of these endings: path from the root, and text.
fn files(folders: &[&str], endings: &[&str]) -> Vec<(String, String)> {
    let mut waiting: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    let mut found = Vec::new();
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else if endings.iter().any(|ending| path.extension().is_some_and(|found| found == *ending)) {
                let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
                found.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

fn sources() -> Vec<(String, String)> {
    files(&["src"], &["rs"])
}

/// Lines of the product itself, numbered: no comments, and nothing from the first module of tests on.
fn product_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    lines.take_while(|(_, line)| !line.starts_with("#[cfg(test)]")).filter(|(_, line)| !line.trim_start().starts_with("//"))
}

#[track_caller]
fn none(offences: Vec<String>) {
    assert!(offences.is_empty(), "\n{}\n", offences.join("\n"));
}

#[test]
fn every_file_says_first_what_it_is() {
    let mut offences = Vec::new();
    for (name, text) in files(&["src", "tests", "benches", "lua", "migrations"], &["rs", "lua", "sql"]) {
        let first = text.lines().find(|line| !line.starts_with("#!lua")).unwrap_or_default();
        let opening = if name.ends_with(".rs") { "//! " } else { "-- " };
        // The crate's first page is a file of its own.
        if name == "src/lib.rs" && first.contains("include_str!(\"ARCHITECTURE.md\")") {
            continue;
        }
        if first.strip_prefix(opening).is_none_or(|said| said.trim().len() < 10) {
            offences.push(format!("{name}: opens with {first:?}, not with a line of documentation"));
        }
    }
    none(offences);
}

#[test]
fn no_file_is_long() {
    let mut offences = Vec::new();
    for (name, text) in files(&["src", "tests", "benches", "lua", "migrations"], &["rs", "lua", "sql"]) {
        let (lines, most) = (text.lines().count(), if name.ends_with(".lua") { SCRIPT_LINES_MAX } else { LINES_MAX });
        if lines > most {
            offences.push(format!("{name}: {lines} lines, at most {most}"));
        }
    }
    none(offences);
}

#[test]
fn no_file_is_an_attic() {
    let mut offences = Vec::new();
    for (name, _) in files(&["src", "tests", "benches", "lua", "migrations"], &["rs", "lua", "sql"]) {
        if name.split(['/', '.', '_']).any(|part| ATTICS.contains(&part)) {
            offences.push(format!("{name}: a name that does not say what it holds"));
        }
    }
    none(offences);
}

#[test]
fn rooms_are_one_level_deep() {
    let deep = |name: &String| name.matches('/').count() > 2 && !name.starts_with("src/commands/load/");
    none(sources().into_iter().map(|(name, _)| name).filter(deep).collect());
}

#[test]
fn rooms_keep_their_walls() {
    let mut offences = Vec::new();
    for (name, text) in sources() {
        for (room, words, why) in WALLS.iter().filter(|(room, ..)| name.starts_with(&format!("{room}/"))) {
            for (at, line) in product_lines(&text) {
                for word in words.iter().filter(|word| line.contains(**word)) {
                    offences.push(format!("{name}:{at}: {word:?} in {room}, but {why}"));
                }
            }
        }
    }
    none(offences);
}

#[test]
fn clients_of_stores_keys_and_settings_have_one_home() {
    let mut offences = Vec::new();
    for (name, text) in sources() {
        for (word, _, why) in HOMES.iter().filter(|(_, homes, _)| !homes.iter().any(|home| name.starts_with(home))) {
            for (at, line) in product_lines(&text).filter(|(_, line)| line.contains(word)) {
                offences.push(format!("{name}:{at}: {word:?}, but {why}: {}", line.trim()));
            }
        }
    }
    none(offences);
}

#[test]
fn every_script_has_its_function_and_its_header() {
    let mut offences = Vec::new();
    let registry = fs::read_to_string(root().join("src/redis/scripts.rs")).unwrap();
    let scripts = files(&["lua"], &["lua"]);
    assert!(!scripts.is_empty());
    for (name, text) in &scripts {
        let verb = Path::new(name).file_stem().unwrap().to_str().unwrap();
        let function = fs::read_to_string(root().join(format!("src/redis/{verb}.rs"))).unwrap_or_default();
        if !function.contains(&format!("\"../../lua/{verb}.lua\"")) {
            offences.push(format!("{name}: src/redis/{verb}.rs does not run it"));
        }
        if !registry.contains(&format!("{verb}::SCRIPT")) {
            offences.push(format!("{name}: not listed in src/redis/scripts.rs"));
        }
        let header: Vec<&str> = text.lines().take_while(|line| line.starts_with("--") || line.starts_with("#!lua")).collect();
        for word in ["KEYS", "ARGV", "RETURNS", "WHY"] {
            if !header.iter().any(|line| line.trim_start_matches(['-', ' ']).starts_with(word)) {
                offences.push(format!("{name}: its header does not say {word}"));
            }
        }
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("--")) {
            if line.contains(":{") {
                offences.push(format!("{name}:{}: builds a key; keys are passed in", at + 1));
            }
            for word in ["redis.call('TIME')", "\"TIME\"", "math.random", "os.time", "os.clock"] {
                if line.contains(word) {
                    offences.push(format!("{name}:{}: {word}; clock and chance are passed in", at + 1));
                }
            }
        }
    }
    for (name, text) in files(&["src"], &["rs"]) {
        for (at, line) in product_lines(&text).filter(|(_, line)| line.contains(".lua\")")) {
            let own = format!("/{}.lua\"", Path::new(&name).file_stem().unwrap().to_str().unwrap());
            if !line.contains(&own) {
                offences.push(format!("{name}:{at}: runs a script of another name"));
            }
        }
    }
    none(offences);
}

#[test]
fn sql_is_written_whole() {
    let mut offences = Vec::new();
    for (name, text) in files(&["src/postgres"], &["rs"]) {
        for (at, line) in product_lines(&text).filter(|(_, line)| line.contains("AssertSqlSafe") || line.contains("QueryBuilder")) {
            offences.push(format!("{name}:{at}: SQL put together at run time: {}", line.trim()));
        }
    }
    none(offences);
}

#[test]
fn the_product_does_not_give_up() {
    let mut offences = Vec::new();
    for (name, text) in sources() {
        for (at, line) in product_lines(&text) {
            for word in [".unwrap()", ".expect(", "panic!(", "todo!(", "unimplemented!(", "dbg!("] {
                if line.contains(word) {
                    offences.push(format!("{name}:{at}: {word} in the product: {}", line.trim()));
                }
            }
        }
    }
    none(offences);
}

#[test]
fn what_is_unsafe_has_its_proof() {
    let mut offences = Vec::new();
    for (name, text) in sources() {
        let lines: Vec<&str> = text.lines().collect();
        for (at, _) in product_lines(&text).filter(|(_, line)| line.contains("unsafe ") && !line.contains("deny")) {
            let above = &lines[at.saturating_sub(6)..at];
            if !above.iter().any(|line| line.contains("SAFETY:")) {
                offences.push(format!("{name}:{at}: unsafe without a SAFETY: comment above"));
            }
        }
    }
    none(offences);
}

#[test]
fn migrations_are_numbered_without_a_gap() {
    let mut numbers: Vec<usize> = Vec::new();
    for (name, _) in files(&["migrations"], &["sql"]) {
        let number = name.trim_start_matches("migrations/").split_once('_').and_then(|(number, _)| number.parse().ok());
        numbers.push(number.unwrap_or_else(|| panic!("{name}: not NNNN_verb_noun.sql")));
    }
    assert_eq!(numbers, (1..=numbers.len()).collect::<Vec<_>>());
}
