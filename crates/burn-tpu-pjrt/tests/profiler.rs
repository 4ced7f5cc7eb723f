//! The profiler extension: which plugins have it, and that it starts, stops and returns data.

mod common;

use burn_tpu_pjrt::{PluginKind, Profiler};
use common::*;

#[test]
fn the_cpu_plugin_has_no_profiler() {
    let Some(plugin) = cpu_plugin() else { return };
    assert!(!Profiler::is_in(plugin).unwrap());
    assert!(Profiler::new(plugin, &[]).unwrap().is_none());
}

/// A separate process: libtpu takes over signal handlers and reads its environment once.
#[test]
fn libtpus_profiler_collects() {
    const TEST: &str = "libtpus_profiler_collects";
    if !is_child() {
        return passes_in_child(TEST, &[]);
    }
    let Some(libtpu) = libtpu() else { return };
    assert!(Profiler::is_in(libtpu).unwrap());
    let mut profiler = Profiler::new(libtpu, &[]).unwrap().expect("libtpu has a profiler");
    profiler.start().unwrap();
    profiler.stop().unwrap();
    let space = profiler.collect().unwrap();
    // Field 1 of an XSpace, a plane, and the zero byte that plugins append.
    assert_eq!((space.first(), space.last()), (Some(&0x0a), Some(&0)), "{} bytes", space.len());
}

/// Loads on machines without a GPU too, where starting is an error or collects nothing; it must not end the process.
#[test]
fn the_cuda_plugin_has_a_profiler() {
    const TEST: &str = "the_cuda_plugin_has_a_profiler";
    if !is_child() {
        return passes_in_child(TEST, &[]);
    }
    let Some(plugin) = plugin(PluginKind::Cuda) else { return };
    let mut profiler = Profiler::new(plugin, &[]).unwrap().expect("the CUDA plugin has a profiler");
    if profiler.start().is_ok() {
        profiler.stop().unwrap();
        profiler.collect().unwrap();
    }
}
