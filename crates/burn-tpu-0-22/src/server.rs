//! What a server of this backend does beside serving: it records each client thread in a stream, and ends steps.

use crate::{Tpu, TpuDevice};
use burn_ir::{BackendIr, CustomOpIr, HandleContainer};
use burn_std::stream::StreamId;
use burn_tpu_runtime::Stream;

/// The id of the custom op with which a client ends a training step. Burn's protocol has no message for that; it has custom
/// ops. See [`mark_step`].
pub const MARK_STEP: &str = "burn_tpu.mark_step";

/// Runs everything that the client's thread recorded as one program, and does not wait for it: the handler of the custom op
/// [`MARK_STEP`], which has no operands and no results. Give it to `BackendServer::with_custom_op`.
///
/// A client that never sends it is served as well: then a read or a sync ends a program.
pub fn mark_step(_: &mut HandleContainer<<Tpu as BackendIr>::Handle>, _: &CustomOpIr, device: &TpuDevice) {
    device.mark_step();
}

/// Records what each thread of a client does in a stream of its own, as a local program's threads do. A server calls it
/// once, before it serves.
///
/// Burn's server runs all ops of a session on one thread, in the order in which the client sent them, and names the client's
/// thread ([`StreamId`]) at each. Without this call a read by one thread of a client (its metrics) runs half a step of
/// another (its training), at a point that depends on their timing, and every such point is another program to compile.
///
/// ```
/// burn_tpu_0_22::follow_client_threads();
/// ```
pub fn follow_client_threads() {
    Stream::per_caller(|| StreamId::current().value);
}
