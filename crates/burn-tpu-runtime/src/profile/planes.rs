//! The planes of a profile, made of its data.

use super::session::{Phase, ProfileData, Run};
use crate::Device;
use burn_tpu_profile::xspace::{XPlane, XSpace};
use burn_tpu_profile::{CUSTOM_DEVICE_PREFIX, HOST_PLANE, PlaneBuilder, Stat, names};
use std::ops::Range;

/// Returns the host's plane and, where no plugin's profiler reports its own (`with_devices`), the planes of the devices.
pub(super) fn space(collected: &mut ProfileData, host: &str, with_devices: bool) -> XSpace {
    let mut planes = vec![host_plane(collected)];
    if with_devices {
        planes.extend(device_planes(collected));
    }
    let left_out = collected.left_out;
    let warnings = (left_out > 0).then(|| format!("{left_out} spans of the host were left out"));
    XSpace { planes, hostnames: vec![host.to_owned()], warnings: warnings.into_iter().collect(), errors: Vec::new() }
}

/// Returns a time of the profile in nanoseconds since the UNIX epoch.
fn since_epoch(began_unix_ns: u64, time_ns: &Range<u64>) -> Range<u64> {
    began_unix_ns + time_ns.start..began_unix_ns + time_ns.end
}

/// Threads are lines, spans are events.
fn host_plane(collected: &mut ProfileData) -> XPlane {
    let ProfileData { began_unix_ns: began, places, .. } = collected;
    let mut plane = PlaneBuilder::new(HOST_PLANE);
    plane.plane_stat(names::BEGIN_NS, Stat::Number(*began as i64));
    plane.plane_stat(names::END_NS, Stat::Number((*began + collected.length_ns) as i64));
    for (&id, thread) in &collected.threads {
        let line = plane.line(id as i64, thread.name.as_str());
        for span in &thread.spans {
            let mut stats = vec![(names::PHASE, Stat::text(span.phase.name()))];
            if span.phase == Phase::Record {
                stats.push((names::FRAMEWORK_OP, Stat::text(span.name)));
            }
            if let Some(place) = span.stack.as_ref().map(|stack| places.place(stack)) {
                stats.push((names::SOURCE, Stat::Text(place.line)));
                stats.extend((!place.module.is_empty()).then_some((names::MODULE, Stat::Text(place.module))));
            }
            plane.event(line, span.name, since_epoch(*began, &span.time_ns), stats);
        }
    }
    plane.finish()
}

/// Returns a plane for each device that ran something: its programs, one after another.
fn device_planes(collected: &mut ProfileData) -> Vec<XPlane> {
    let count = collected.runs.iter().map(|run| run.device + 1).max().unwrap_or(0);
    (0..count).map(|device| device_plane(collected, device)).collect()
}

fn device_plane(collected: &mut ProfileData, device: usize) -> XPlane {
    let mut plane = PlaneBuilder::new(name_of(collected.device, device));
    let line = plane.line(1, "Programs");
    let mut runs: Vec<&Run> = collected.runs.iter().filter(|run| run.device == device).collect();
    runs.sort_by_key(|run| run.time_ns.end);
    let mut free = 0;
    for run in runs {
        // A program that was dispatched while another ran waited for it.
        let time = run.time_ns.start.max(free)..run.time_ns.end;
        free = time.end;
        let source = collected.places.lines_of(&run.lines, &run.program.ops);
        let source = (!source.is_empty()).then_some((names::SOURCE, Stat::Text(source)));
        let stats = std::iter::once((names::BURN_OPS, Stat::Text(run.program.burn_ops()))).chain(source);
        plane.event(line, &run.program.name, since_epoch(collected.began_unix_ns, &time), stats);
    }
    plane.finish()
}

/// Returns the name of a plane, which XProf's viewer shows: `/device:CUSTOM:cpu:0`.
fn name_of(device: Device, part: usize) -> String {
    match device.platform() {
        crate::Platform::Mesh => format!("{CUSTOM_DEVICE_PREFIX}{device}:{part}"),
        _ => format!("{CUSTOM_DEVICE_PREFIX}{device}"),
    }
}
