//! Burn's distributed data parallel training: one thread and one copy of the model per device.
//!
//! Owns: Burn's trait and the threads of a training. May not know: how values are reduced (`burn-tpu-runtime`).
//!
//! Burn's own server has the raw pointers of the gradients and writes the reduced ones through them. It reads them as soon as
//! all devices have given a gradient, and nothing tells it that a thread panicked and freed its gradients. So what a backward
//! pass gives to the server waits in its thread until all threads have finished theirs. Then none can end before all are
//! served.

use crate::backend::{TpuFloat, TpuInt};
use crate::{Tpu, TpuDevice};
use burn_backend::DeviceId;
use burn_backend::distributed::{
    CollectiveTensor, DistributedBackend, DistributedConfig, DistributedParams, ReduceOperation, TensorRef,
    close_distributed_sync_server, get_distributed_sync_client, start_distributed_sync_server,
};
use burn_backend::tensor::FloatTensor;
use burn_std::device::Device as _;
use burn_tpu_runtime::collective::{self, Reduction, Session};
use burn_tpu_runtime::{Device, TpuError};
use std::any::TypeId;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The training of each backend type, as Burn has one server for each.
static SESSIONS: Mutex<Option<HashMap<TypeId, Arc<Session>>>> = Mutex::new(None);
/// The latest training that failed. A thread of it that still runs finds here that it has.
static FAILED: Mutex<Option<Arc<Session>>> = Mutex::new(None);

thread_local! {
    /// What the calling thread's backward pass gives to Burn's server when all threads have finished theirs.
    static GIVEN: RefCell<Vec<Box<dyn FnOnce()>>> = const { RefCell::new(Vec::new()) };
}

fn sessions() -> MutexGuard<'static, Option<HashMap<TypeId, Arc<Session>>>> {
    SESSIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn session<B: 'static>() -> Option<Arc<Session>> {
    sessions().as_ref().and_then(|sessions| sessions.get(&TypeId::of::<B>()).cloned())
}

/// Waits for the threads of the other devices.
///
/// # Panics
/// If one of them has ended or does not come: Burn's methods return no error, and training must not go on.
fn meet(session: &Session) {
    if let Err(error) = session.meet() {
        collective::abandon(session.devices(), &error);
        panic!("burn-tpu: {error}");
    }
}

impl<F: TpuFloat, I: TpuInt> DistributedBackend for Tpu<F, I> {
    /// Starts the training of one thread per device. One that failed earlier is forgotten.
    fn start_communication_server(devices: &[TpuDevice], config: DistributedConfig) {
        let devices: Vec<Device> = devices.iter().map(|device| device.0).collect();
        let id = TypeId::of::<Self>();
        let mut sessions = sessions();
        let sessions = sessions.get_or_insert_default();
        if sessions.get(&id).is_some_and(|session| session.is_broken()) {
            *FAILED.lock().unwrap_or_else(PoisonError::into_inner) = sessions.remove(&id);
            close_distributed_sync_server::<Self>();
            let reason = "an earlier training of these devices has failed".to_owned();
            collective::abandon(&devices, &TpuError::Peer { reason });
        }
        sessions.entry(id).or_insert_with(|| Session::new(&devices));
        let devices: Vec<TpuDevice> = devices.into_iter().map(TpuDevice::from).collect();
        start_distributed_sync_server::<Self>(&devices, config);
    }

    fn close_communication_server(_device: &TpuDevice) {
        let session = sessions().as_mut().and_then(|sessions| sessions.remove(&TypeId::of::<Self>()));
        if let Some(session) = session {
            session.close();
        }
        close_distributed_sync_server::<Self>();
    }

    fn register_sync_parameters(device: &TpuDevice, distributed_params: Vec<DistributedParams>) {
        if let Some(session) = session::<Self>() {
            session.enter(device.0);
        }
        GIVEN.with_borrow_mut(|given| {
            // A backward pass that panicked may have left some.
            given.clear();
            given.push(Box::new(move || {
                if let Some(server) = get_distributed_sync_client::<Self>() {
                    server.register_sync_parameters(distributed_params);
                }
            }));
        });
    }

    fn submit_gradient_sync(tensor: TensorRef<Self>, distributed_params: DistributedParams) {
        GIVEN.with_borrow_mut(|given| {
            given.push(Box::new(move || {
                if let Some(server) = get_distributed_sync_client::<Self>() {
                    server.submit_gradient_sync(tensor, distributed_params);
                }
            }));
        });
    }

    /// Reduces the gradients of the backward pass that the calling thread has just finished.
    ///
    /// # Panics
    /// If the thread of another device has ended, or does not come within
    /// [`TpuOptions::peer_timeout`](crate::TpuOptions::peer_timeout).
    fn submit_sync_collective(device: &TpuDevice) {
        let given = GIVEN.take();
        let session = Session::of_this_thread();
        if let Some(session) = &session {
            meet(session);
        }
        given.into_iter().for_each(|give| give());
        if let Some(server) = get_distributed_sync_client::<Self>() {
            server.submit_sync_collective(*device);
        }
        if let Some(session) = &session {
            meet(session);
        }
    }

    /// Returns the tensor that the reduction will have. It waits for no other device; a read of the tensor does.
    fn all_reduce(tensor: FloatTensor<Self>, op: ReduceOperation, device_ids: Vec<DeviceId>) -> CollectiveTensor<Self> {
        let devices: Vec<Device> = device_ids.into_iter().map(|id| TpuDevice::from_id(id).0).collect();
        let reduction = match op {
            ReduceOperation::Sum => Reduction::Sum,
            ReduceOperation::Mean => Reduction::Mean,
        };
        CollectiveTensor::new(collective::all_reduce(tensor.0, reduction, &devices).into())
    }

    /// Ends the batch of the reductions that were asked for, and runs what the calling thread recorded for them.
    fn sync_collective(device: &TpuDevice) {
        collective::settle(device.0);
    }
}
