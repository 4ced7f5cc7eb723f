//! The live values of a device, counted where they were made.

use super::OutOfMemory;
use super::report::{LiveTensors, MemoryKind, MemoryUse};
use crate::error::{Result, TpuError};
use crate::lines::{Resolver, Stack};
use burn_tpu_graph::{Label, Role, TensorType};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

/// The live values of a device. All sizes are those on the device; of a mesh, of all its chips that this process has.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    live: AtomicU64,
    peak: AtomicU64,
    /// What was live at the peak.
    at_peak: Mutex<MemoryUse>,
    sites: Mutex<Sites>,
    /// The most bytes that may be live; 0 for no limit.
    limit: AtomicU64,
}

/// The sites of which a value is live, and some others.
#[derive(Debug, Default)]
struct Sites {
    all: Vec<Weak<Site>>,
    /// The number of sites from which those are forgotten that are gone.
    most: usize,
}

/// The origin of values: a result of a program, or a value that came from the host.
pub(crate) struct Site {
    ledger: Arc<Ledger>,
    ty: TensorType,
    /// Of one value on one device, once there was one.
    bytes: OnceLock<u64>,
    kind: AtomicU8,
    live: AtomicUsize,
    /// The Burn op that makes the value.
    op: OnceLock<Label>,
    /// The stack that recorded the op.
    stack: OnceLock<Stack>,
}

impl std::fmt::Debug for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} live values {} of {:?}", self.live.load(Relaxed), self.ty, self.op.get())
    }
}

/// A live value. It is counted until this is dropped.
pub(crate) struct Held(Arc<Site>);

/// The op of a value that came from the host.
const FROM_HOST: Label = "from_data";

/// The number of largest sites in a report.
const LARGEST: usize = 10;

impl Ledger {
    /// Sets the most bytes that may be live.
    pub(crate) fn set_limit(&self, bytes: Option<u64>) {
        self.limit.store(bytes.unwrap_or(0), Relaxed);
    }

    /// Returns the most bytes that may be live, if there is a limit.
    pub(crate) fn limit(&self) -> Option<u64> {
        Some(self.limit.load(Relaxed)).filter(|&limit| limit > 0)
    }

    /// Returns the bytes that are live.
    pub(crate) fn live(&self) -> u64 {
        self.live.load(Relaxed)
    }

    /// Checks that there is room for so many more bytes.
    ///
    /// # Errors
    /// [`TpuError::OutOfMemory`] if they exceed the limit. The device's name is left to the device.
    pub(crate) fn check(&self, what: &dyn std::fmt::Display, needed: u64) -> Result<()> {
        let Some(limit) = self.limit().filter(|&limit| self.live() + needed > limit) else { return Ok(()) };
        Err(self.full(what.to_string(), Some(needed), Some(limit), None))
    }

    /// Returns the error of a device without room for something.
    pub(crate) fn full(
        &self,
        what: String,
        needed: Option<u64>,
        limit: Option<u64>,
        message: Option<String>,
    ) -> TpuError {
        let (device, live, largest) = (String::new(), self.by_kind(), Vec::new());
        TpuError::OutOfMemory(Box::new(OutOfMemory { device, what, needed, live, limit, message, largest }))
    }

    /// Returns the origin of a program's result.
    pub(crate) fn result(self: &Arc<Self>, ty: TensorType, role: Role) -> Arc<Site> {
        let kind = match role {
            Role::Parameter => MemoryKind::Parameters,
            Role::State => MemoryKind::OptimizerState,
            Role::Value => MemoryKind::Activations,
        };
        self.site(ty, kind)
    }

    /// Returns the origin of a value that came from the host. It counts as a batch until a second run reads it.
    pub(crate) fn upload(self: &Arc<Self>, ty: TensorType) -> Arc<Site> {
        let site = self.site(ty, MemoryKind::Batches);
        site.op.get_or_init(|| FROM_HOST);
        site
    }

    fn site(self: &Arc<Self>, ty: TensorType, kind: MemoryKind) -> Arc<Site> {
        let site = Arc::new(Site {
            ledger: Arc::clone(self),
            ty,
            bytes: OnceLock::new(),
            kind: AtomicU8::new(kind as u8),
            live: AtomicUsize::new(0),
            op: OnceLock::new(),
            stack: OnceLock::new(),
        });
        self.sites.lock().add(&site);
        site
    }

    /// A program was dispatched that needs so many bytes beside its arguments and results.
    pub(crate) fn ran(&self, temporaries: u64) {
        let bytes = self.live() + temporaries;
        // Noting a peak walks over all sites, so a slow growth is noted in steps of 0.1 %.
        let known = self.peak.load(Relaxed);
        if bytes <= known + known / 1024 {
            return;
        }
        self.peak.store(bytes, Relaxed);
        *self.at_peak.lock() = MemoryUse { temporaries, ..self.by_kind() };
    }

    /// Returns what is live now.
    pub(crate) fn by_kind(&self) -> MemoryUse {
        let mut uses = MemoryUse::default();
        for site in self.live_sites() {
            *uses.of_mut(site.kind()) += site.live_bytes();
        }
        uses
    }

    /// Returns what was live at the peak.
    pub(crate) fn peak(&self) -> MemoryUse {
        *self.at_peak.lock()
    }

    /// Returns the largest live values, largest first. `uploaded_at` returns the line of host values of a type.
    pub(crate) fn largest(&self, uploaded_at: impl Fn(&TensorType) -> Option<String>) -> Vec<LiveTensors> {
        let mut resolver = Resolver::default();
        let mut all: Vec<LiveTensors> = Vec::new();
        // Finding a line takes milliseconds, so it is done for the largest alone.
        for (site, count, bytes) in self.largest_origins() {
            let recorded_at = site.stack.get().map(|stack| resolver.line(stack));
            let line = recorded_at.or_else(|| uploaded_at(&site.ty).filter(|_| site.op() == FROM_HOST));
            let (op, ty) = (site.op().to_owned(), site.ty.to_string());
            let found = LiveTensors { op, line, ty, kind: site.kind(), count, bytes };
            match all.iter_mut().find(|known| known.is_like(&found)) {
                Some(known) => known.add(&found),
                None => all.push(found),
            }
        }
        all.sort_by_key(|tensors| std::cmp::Reverse(tensors.bytes));
        all.truncate(LARGEST);
        all
    }

    /// Returns the origins of the largest values, each with the number of live values and their bytes. Every value of the
    /// host has an origin of its own; those of one type are one here.
    fn largest_origins(&self) -> Vec<(Arc<Site>, usize, u64)> {
        let mut from_host: FxHashMap<(TensorType, MemoryKind), usize> = FxHashMap::default();
        let mut origins: Vec<(Arc<Site>, usize, u64)> = Vec::new();
        for site in self.live_sites() {
            let (count, bytes) = (site.live.load(Relaxed), site.live_bytes());
            let new = origins.len();
            let place = match site.op() {
                FROM_HOST => *from_host.entry((site.ty.clone(), site.kind())).or_insert(new),
                _ => new,
            };
            match origins.get_mut(place) {
                Some(known) => (known.1, known.2) = (known.1 + count, known.2 + bytes),
                None => origins.push((site, count, bytes)),
            }
        }
        origins.sort_by_key(|&(_, _, bytes)| std::cmp::Reverse(bytes));
        origins.truncate(16 * LARGEST);
        origins
    }

    fn live_sites(&self) -> Vec<Arc<Site>> {
        let sites = self.sites.lock();
        sites.all.iter().filter_map(Weak::upgrade).filter(|site| site.live.load(Relaxed) > 0).collect()
    }
}

impl Sites {
    fn add(&mut self, site: &Arc<Site>) {
        if self.all.len() >= self.most {
            self.all.retain(|site| site.strong_count() > 0);
            self.most = 2 * self.all.len() + 64;
        }
        self.all.push(Arc::downgrade(site));
    }
}

impl Site {
    /// Counts a value of this origin. `bytes` returns its size on the device, and is called for the first one.
    pub(crate) fn hold(self: &Arc<Self>, bytes: impl FnOnce() -> u64) -> Held {
        let bytes = *self.bytes.get_or_init(bytes);
        self.live.fetch_add(1, Relaxed);
        self.ledger.live.fetch_add(bytes, Relaxed);
        Held(Arc::clone(self))
    }

    /// Returns the size of one value, as far as it is known.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.get().copied().unwrap_or(0)
    }

    fn live_bytes(&self) -> u64 {
        self.live.load(Relaxed) as u64 * self.bytes()
    }

    fn kind(&self) -> MemoryKind {
        MemoryKind::TENSORS[usize::from(self.kind.load(Relaxed))]
    }

    fn op(&self) -> Label {
        self.op.get().copied().unwrap_or("")
    }

    /// A further run reads a value of the host.
    pub(crate) fn read_again(&self) {
        if self.kind() == MemoryKind::Batches {
            self.kind.store(MemoryKind::Parameters as u8, Relaxed);
        }
    }

    /// Notes the op that makes the value.
    pub(super) fn set_op(&self, op: Label) {
        self.op.get_or_init(|| op);
    }

    /// Notes the stack that recorded the op, unless one is known. Returns whether one is known now.
    pub(super) fn set_stack(&self, stack: Option<&Stack>) -> bool {
        if let Some(stack) = stack {
            self.stack.get_or_init(|| stack.clone());
        }
        self.stack.get().is_some()
    }
}

impl Held {
    pub(crate) fn site(&self) -> &Arc<Site> {
        &self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, Relaxed);
        self.0.ledger.live.fetch_sub(self.0.bytes(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_tpu_graph::DType;

    fn ty() -> TensorType {
        TensorType::new(DType::F32, [2, 3])
    }

    #[test]
    fn values_are_counted_by_kind_until_they_are_dropped() {
        let ledger = Arc::<Ledger>::default();
        let weight = ledger.result(ty(), Role::Parameter);
        let held = [weight.hold(|| 24), weight.hold(|| unreachable!("the size is known"))];
        let batch = ledger.upload(ty()).hold(|| 512);
        assert_eq!(ledger.live(), 560);
        assert_eq!(ledger.by_kind(), MemoryUse { parameters: 48, batches: 512, ..MemoryUse::default() });
        batch.site().read_again();
        assert_eq!(ledger.by_kind(), MemoryUse { parameters: 560, ..MemoryUse::default() });
        ledger.ran(40);
        drop((held, batch));
        assert_eq!((ledger.live(), ledger.by_kind()), (0, MemoryUse::default()));
        ledger.ran(10);
        assert_eq!(ledger.peak(), MemoryUse { parameters: 560, temporaries: 40, ..MemoryUse::default() });
    }

    #[test]
    fn the_largest_values_of_one_origin_are_one_entry() {
        let ledger = Arc::<Ledger>::default();
        let loss = ledger.result(TensorType::new(DType::F32, [1]), Role::Value);
        loss.set_op("float_mean");
        let kept: Vec<Held> = (0..5).map(|_| loss.hold(|| 4)).collect();
        let uploads: Vec<Held> = (0..3).map(|_| ledger.upload(ty()).hold(|| 24)).collect();
        let largest = ledger.largest(|_| Some("src/data.rs:7".to_owned()));
        let found: Vec<_> = largest.iter().map(|found| (found.op.as_str(), found.count, found.bytes)).collect();
        assert_eq!(found, [("from_data", 3, 72), ("float_mean", 5, 20)]);
        assert_eq!((largest[0].line.as_deref(), &largest[1].line), (Some("src/data.rs:7"), &None));
        drop((kept, uploads));
    }

    #[test]
    fn origins_that_are_gone_are_forgotten() {
        let ledger = Arc::<Ledger>::default();
        for _ in 0..10_000 {
            drop(ledger.upload(ty()).hold(|| 24));
        }
        assert!(ledger.sites.lock().all.len() < 200);
    }
}
