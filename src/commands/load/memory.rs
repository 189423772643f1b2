//! Memory of other processes on this machine, and how many files this one may open.

use super::LoadError;

/// Resident bytes of all these processes together.
///
/// # Errors
/// [`LoadError::Setup`] when one of them cannot be read: no such process, or not a Linux machine.
pub fn resident_bytes(pids: &[u32]) -> Result<u64, LoadError> {
    let mut sum = 0;
    for pid in pids {
        let path = format!("/proc/{pid}/status");
        let text = std::fs::read_to_string(&path).map_err(|err| LoadError::Setup(format!("--pid {pid}: {path}: {err}")))?;
        sum += field_kib(&text, "VmRSS:").ok_or_else(|| LoadError::Setup(format!("--pid {pid}: {path} names no VmRSS")))? * 1024;
    }
    Ok(sum)
}

fn field_kib(status: &str, name: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// Refuses a number of streams for which this process may not open enough files, before it has opened half of them.
///
/// # Errors
/// [`LoadError::Usage`] with what to do.
pub fn check_open_files(streams: usize) -> Result<(), LoadError> {
    /// Connections for sends, and what a process has open anyway.
    const SPARE: usize = 300;
    let Ok(limits) = std::fs::read_to_string("/proc/self/limits") else { return Ok(()) };
    let limit = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok());
    match limit {
        Some(limit) if limit < streams + SPARE => Err(LoadError::Usage(format!(
            "{streams} streams need about {} open files and this shell allows {limit}: run `ulimit -n {}` first",
            streams + SPARE,
            streams + SPARE
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_this_process_is_found() {
        assert!(resident_bytes(&[std::process::id()]).is_ok_and(|bytes| bytes > 1 << 20));
        assert!(resident_bytes(&[u32::MAX]).is_err());
        assert_eq!(field_kib("Name:\tx\nVmRSS:\t   12 kB\n", "VmRSS:"), Some(12));
    }
}
