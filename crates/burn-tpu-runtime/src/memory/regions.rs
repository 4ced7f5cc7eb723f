//! The regions of memory that the process has mapped. Linux lets it have `vm.max_map_count` of them, 65,530 by default.
//!
//! XLA maps a few for each kernel of a program that it compiles for the CPU, thousands for one of thousands of ops, and ends
//! the process if it can map no more.

use std::fs;

/// Returns whether the process has mapped half of the regions that it can have, so that there may be too few for the next
/// program. On systems that do not tell, there are enough.
pub(crate) fn regions_are_short() -> bool {
    let most = fs::read_to_string("/proc/sys/vm/max_map_count").ok().and_then(|most| most.trim().parse::<usize>().ok());
    let mapped = fs::read("/proc/self/maps").ok().map(|maps| maps.iter().filter(|&&byte| byte == b'\n').count());
    most.zip(mapped).is_some_and(|(most, mapped)| mapped > most / 2)
}
