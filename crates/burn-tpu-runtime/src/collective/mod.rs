//! Collective operations: one tensor on each device of a group becomes the sum or the mean of all of them.
//!
//! Owns: which calls belong together, when they run, what happens if a device never calls. May not know: how a front end
//! names devices, nor which of its tensors are gradients.
//!
//! Each device of a group calls [`all_reduce`] with its tensor and gets a tensor that waits. The calls of a device are
//! counted: its n-th belongs to the n-th of every other device of the group, whichever threads make them and in whatever
//! order. No call waits and none cuts a trace. What waits, and at most [`TpuOptions::peer_timeout`], is a read, or a cut of
//! a program that uses the result.
//!
//! The results that were asked for between two [`settle`] are a *batch*. The first use of one of them runs all of the batch
//! that every device has called for, as one program on a mesh of the group's devices.
//!
//! # Why nothing waits in a circle
//!
//! A result is used after its batch is closed, so what is computed from it belongs to a later batch. A thread that runs a
//! batch waits for earlier batches only. It holds no trace's lock meanwhile.
//!
//! [`TpuOptions::peer_timeout`]: crate::TpuOptions::peer_timeout

mod exchange;
mod group;
mod session;
#[cfg(test)]
mod tests;

pub use session::Session;

use crate::error::TpuError;
use crate::metrics::CutReason;
use crate::ops::data::failed;
use crate::trace::materialise_together;
use crate::{Device, Tensor};
use group::Group;
use parking_lot::Mutex;
use std::sync::Arc;

/// How the tensors of a group become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// The sum.
    Sum,
    /// The sum, divided by the number of devices.
    Mean,
}

/// The groups of this process. They are few and are never removed.
static GROUPS: Mutex<Vec<Arc<Group>>> = Mutex::new(Vec::new());

/// Returns the sum or the mean of the tensors that all of `devices` give, on the device of `x`. It does not wait for them.
///
/// 16-bit floats are added in f32 and rounded once. A group of one device returns `x`.
///
/// # Errors
/// The result's read returns [`TpuError::Peer`] if `x` is on no device of the group, if another device gives another type or
/// asks for another reduction, or if one does not call in time.
pub fn all_reduce(x: Tensor, reduction: Reduction, devices: &[Device]) -> Tensor {
    let mut devices = devices.to_vec();
    devices.sort_unstable();
    devices.dedup();
    let Ok(rank) = devices.binary_search(&x.device()) else {
        let reason = format!("a tensor of {} is not on a device of the group {devices:?}", x.device());
        return failed(x.ty().clone(), TpuError::Peer { reason }, &x.device());
    };
    if devices.len() == 1 { x } else { group_of(devices).give(rank, x, reduction) }
}

/// Closes the batches of the device's groups, and runs what the calling thread recorded of its parts. Call it on the thread
/// that recorded them: its cut is then at the same place at every step, whichever thread asks for a result first. What would
/// have to wait for other devices is left to the read.
///
/// A cut that fails is logged; the results' reads return its error.
pub fn settle(device: Device) {
    let groups: Vec<_> = GROUPS.lock().iter().filter(|group| group.devices().contains(&device)).cloned().collect();
    for group in groups {
        let parts = group.settle(device);
        let own = parts.iter().filter(|part| {
            part.origin().is_some_and(|origin| origin.is_owned_here() && !origin.own_cut_waits_for_devices())
        });
        if let Err(error) = materialise_together(own, CutReason::DeviceCopy) {
            tracing::error!(%device, %error, "what is to be reduced did not run; the results report the error");
        }
    }
}

/// Ends the waits of the groups of these devices with an error, and counts their calls anew.
pub fn abandon(devices: &[Device], error: &TpuError) {
    let concerned = |group: &&Arc<Group>| group.devices().iter().any(|device| devices.contains(device));
    let groups: Vec<_> = GROUPS.lock().iter().filter(concerned).cloned().collect();
    groups.iter().for_each(|group| group.abandon(error));
}

/// Returns the group of these devices, which are ascending.
fn group_of(devices: Vec<Device>) -> Arc<Group> {
    let mut groups = GROUPS.lock();
    if let Some(group) = groups.iter().find(|group| group.devices() == devices) {
        return Arc::clone(group);
    }
    let group = Arc::new(Group::new(devices));
    groups.push(Arc::clone(&group));
    group
}
