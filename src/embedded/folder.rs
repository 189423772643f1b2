//! Folders of private servers: the data folder that lives on (and is used by one process at a time), and temporary ones.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rand::Rng as _;

use super::EmbeddedError;

/// A folder that keeps data from start to start, held by this process alone until dropped.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    /// Locked; the operating system takes the lock back however we end.
    _lock: File,
}

impl DataFolder {
    /// Makes the folder if need be and takes its lock.
    ///
    /// # Errors
    /// [`EmbeddedError::InUse`] when another process holds it; otherwise when it cannot be made.
    pub fn open(path: &Path) -> Result<Self, EmbeddedError> {
        make_private_folder(path)?;
        let path = path.canonicalize().map_err(EmbeddedError::io(format!("finding {}", path.display())))?;
        let lock_path = path.join("lock");
        let options = || OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&lock_path);
        let mut lock = options().map_err(EmbeddedError::io(format!("opening {}", lock_path.display())))?;
        if lock.try_lock().is_err() {
            let mut holder = String::new();
            let _ = lock.read_to_string(&mut holder);
            let why = format!("process {} runs with it", holder.trim());
            return Err(EmbeddedError::InUse { folder: path.display().to_string(), why });
        }
        lock.set_len(0)
            .and_then(|()| lock.write_all(format!("{}\n", std::process::id()).as_bytes()))
            .map_err(EmbeddedError::io(format!("writing {}", lock_path.display())))?;
        Ok(Self { path, _lock: lock })
    }

    /// Where it is, as an absolute path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A folder that is removed when dropped.
#[derive(Debug)]
pub struct TempFolder {
    path: PathBuf,
}

impl TempFolder {
    /// A new folder below the system's folder for temporary files.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(purpose: &str) -> Result<Self, EmbeddedError> {
        let path = std::env::temp_dir().join(format!("seqline-{purpose}-{}-{}", std::process::id(), random_word(8)));
        make_private_folder(&path)?;
        Ok(Self { path })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Makes a folder that only its owner may enter.
pub(super) fn make_private_folder(path: &Path) -> Result<(), EmbeddedError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(EmbeddedError::io(format!("making the folder {}", path.display())))
}

/// Writes a file that only its owner may read; one that exists is replaced whole or not at all.
///
/// # Errors
/// When it cannot be written.
pub fn write_private(path: &Path, text: &str) -> Result<(), EmbeddedError> {
    let fresh = path.with_extension("new");
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&fresh, path));
    written.map_err(EmbeddedError::io(format!("writing {}", path.display())))
}

/// A word of so many random letters and digits, for passwords, secrets and names.
#[must_use]
pub fn random_word(length: usize) -> String {
    rand::rng().sample_iter(rand::distr::Alphanumeric).take(length).map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_folder_has_one_holder() {
        let temp = TempFolder::new("folder").unwrap();
        let first = DataFolder::open(temp.path()).unwrap();
        let refused = DataFolder::open(temp.path()).unwrap_err().to_string();
        assert!(refused.contains(&std::process::id().to_string()), "{refused}");
        drop(first);
        DataFolder::open(temp.path()).unwrap();
    }

    #[test]
    fn private_files_are_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let temp = TempFolder::new("private").unwrap();
        let path = temp.path().join("secret");
        write_private(&path, "one").unwrap();
        write_private(&path, "two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
