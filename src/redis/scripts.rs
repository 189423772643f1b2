//! Every script of the project, so that what must hold for all of them can be checked for all of them.

use super::link::Script;

/// All scripts, in alphabetical order of their names; each stands beside its typed function.
pub static ALL: &[&Script] = &[];
