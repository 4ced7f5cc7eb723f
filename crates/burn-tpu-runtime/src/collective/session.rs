//! Threads that train together: they meet at every step, and none waits for one that has ended.

use crate::Device;
use crate::activity::{WaitFor, Waiting};
use crate::error::{Result, TpuError};
use crate::runtime::runtime;
use parking_lot::{Condvar, Mutex};
use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// One thread per device that train together.
///
/// ```
/// use burn_tpu_runtime::{Device, collective::Session};
/// let devices = [Device::ndarray(), Device::topology("v5e:2x2")?];
/// let session = Session::new(&devices);
/// std::thread::scope(|scope| {
///     for device in devices {
///         let session = &session;
///         scope.spawn(move || {
///             session.enter(device);
///             session.meet()
///         });
///     }
/// });
/// // Both threads have ended, and nobody is left to meet.
/// assert!(session.meet().is_err());
/// # Ok::<(), burn_tpu_runtime::TpuError>(())
/// ```
pub struct Session {
    devices: Vec<Device>,
    state: Mutex<Arrivals>,
    changed: Condvar,
}

#[derive(Default)]
struct Arrivals {
    arrived: usize,
    /// The number of times that all threads have met.
    met: u64,
    /// Why they cannot meet any more.
    broken: Option<TpuError>,
    /// Whether the training has ended as it should.
    closed: bool,
}

/// A thread's membership, which ends with the thread.
struct Membership {
    session: Weak<Session>,
    device: Device,
}

impl Membership {
    /// Returns the session, unless it has ended as it should.
    fn current(&self) -> Option<Arc<Session>> {
        self.session.upgrade().filter(|session| !session.state.lock().closed)
    }
}

thread_local! {
    static MEMBERSHIP: RefCell<Option<Membership>> = const { RefCell::new(None) };
}

impl Drop for Membership {
    fn drop(&mut self) {
        if let Some(session) = self.current() {
            let how = if std::thread::panicking() { "panicked" } else { "ended" };
            session.break_up(TpuError::Peer { reason: format!("the thread of {} has {how}", self.device) });
        }
    }
}

impl Session {
    /// Returns a session of one thread for each of `devices`.
    pub fn new(devices: &[Device]) -> Arc<Self> {
        Arc::new(Self { devices: devices.to_vec(), state: Mutex::default(), changed: Condvar::new() })
    }

    /// Returns the devices.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Makes the calling thread the one of `device`: when it ends, also by a panic, the others stop to wait for it. A thread
    /// stays in the session that it entered first until that is closed, so that one of a training that failed does not enter
    /// the next training.
    pub fn enter(self: &Arc<Self>, device: Device) {
        MEMBERSHIP.with_borrow_mut(|membership| {
            if membership.as_ref().and_then(Membership::current).is_none() {
                *membership = Some(Membership { session: Arc::downgrade(self), device });
            }
        });
    }

    /// Returns the session that the calling thread has entered and that is not closed.
    pub fn of_this_thread() -> Option<Arc<Self>> {
        MEMBERSHIP.with_borrow(|membership| membership.as_ref().and_then(Membership::current))
    }

    /// Ends the session as it should: from now on, its threads may end, and may enter another one.
    pub fn close(&self) {
        self.state.lock().closed = true;
    }

    /// Waits until the threads of all devices have called this.
    ///
    /// # Errors
    /// [`TpuError::Peer`] if one of them has ended, or does not come within
    /// [`TpuOptions::peer_timeout`](crate::TpuOptions::peer_timeout); from then on, every call returns it.
    pub fn meet(&self) -> Result<()> {
        let limit = runtime(self.devices[0]).open().options().peer_timeout;
        let _wait = Waiting::new(None, WaitFor::Threads);
        let deadline = Instant::now().checked_add(limit).filter(|_| !limit.is_zero());
        let mut state = self.state.lock();
        let met = state.met;
        state.arrived += 1;
        if state.arrived == self.devices.len() && state.broken.is_none() {
            (state.arrived, state.met) = (0, met + 1);
            self.changed.notify_all();
            return Ok(());
        }
        while state.met == met && state.broken.is_none() {
            let timed_out = match deadline {
                Some(deadline) => self.changed.wait_until(&mut state, deadline).timed_out(),
                None => {
                    self.changed.wait(&mut state);
                    false
                }
            };
            if timed_out && state.met == met {
                let (count, all, limit) = (state.arrived, self.devices.len(), limit.as_secs_f64());
                let reason =
                    format!("{count} of {all} devices have finished their step, and no other did within {limit} s");
                state.broken.get_or_insert(TpuError::Peer { reason });
                self.changed.notify_all();
            }
        }
        if state.met > met { Ok(()) } else { state.broken.clone().map_or(Ok(()), Err) }
    }

    /// Returns whether the threads cannot meet any more.
    pub fn is_broken(&self) -> bool {
        self.state.lock().broken.is_some()
    }

    fn break_up(&self, error: TpuError) {
        self.state.lock().broken.get_or_insert(error);
        self.changed.notify_all();
    }
}
