//! The broken builds of `.ci/mutants`: their patches fit the tree and name tests that there are. Whether those tests find them out takes a
//! build each, so that is run by hand.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn patches() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mutants");
    let mut patches: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    patches.sort();
    assert!(patches.len() >= 10, "{patches:?}");
    patches
}

#[test]
fn every_patch_says_what_it_breaks_and_which_test_finds_out() {
    let listed = Command::new(std::env::current_exe().unwrap()).arg("--list").output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let tests: Vec<&str> = listed.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    for patch in patches() {
        let text = fs::read_to_string(&patch).unwrap();
        let mut lines = text.lines();
        assert!(
            lines.next().is_some_and(|line| line.len() > 20 && line.ends_with('.')),
            "{}: its first line is no sentence",
            patch.display()
        );
        let test = lines.next().and_then(|line| line.strip_prefix("test: "));
        assert!(test.is_some_and(|test| tests.contains(&test)), "{}: there is no test {test:?}", patch.display());
    }
}

#[test]
fn every_patch_fits_the_tree() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if Command::new("git").arg("--version").output().is_err() {
        println!("not looked at: there is no git here");
        return;
    }
    for patch in patches() {
        // Not as part of a repository further up: paths are those of this tree.
        let checked = Command::new("git")
            .args(["apply", "--check"])
            .arg(&patch)
            .current_dir(root)
            .env("GIT_CEILING_DIRECTORIES", root.parent().unwrap_or(root))
            .output()
            .unwrap();
        assert!(checked.status.success(), "{}: {}", patch.display(), String::from_utf8_lossy(&checked.stderr));
    }
}
