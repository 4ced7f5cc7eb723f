//! What Google Cloud sells and what it is called there, by generation. The only file of `deploy` that holds such facts.
//!
//! Owns: the facts, each with the page of Google's documentation that states it. May not know: what is rendered from them.
//! Names of generations and the chips of a slice are `burn-tpu-runtime`'s (`Generation`, `Topology`).
//!
//! | fact | page below <https://cloud.google.com> |
//! |---|---|
//! | labels of nodes, machine types, chips of a node | `/kubernetes-engine/docs/concepts/plan-tpus` |
//! | shapes and hosts by generation | `/tpu/docs/v4`, `/tpu/docs/v5e`, `/tpu/docs/v5p`, `/tpu/docs/v6e`, `/tpu/docs/tpu7x` |
//! | more than 64 chips: multiples of four, ascending | `/tpu/docs/system-architecture-tpu-vm`, *Topology* |
//! | runtime versions; no TPU7x in the Cloud TPU API | `/tpu/docs/runtimes` |
//! | `--accelerator-type`, or `--type` and `--topology` | `/sdk/gcloud/reference/compute/tpus/queued-resources/create` |
//! | time to save on a Spot node | `/kubernetes-engine/docs/concepts/spot-vms` |
//!
//! Read in these pages in 2026-11: shapes and hosts of v5e and v5p, the rule above 64 chips, runtime versions, `gcloud`'s
//! options, Spot, and four chips to a host of TPU7x. Not read there, but agreed on by several public programs: labels, hosts
//! of v4 and v6e, ports. Not confirmed: the largest slices of v4 and TPU7x (the chips of a pod stand here), and that 2x4 of
//! v5e and v6e is best ordered as one host of eight chips (GKE has it as two hosts of four, too).

use burn_tpu_runtime::Generation;

/// The facts of one generation.
pub struct Facts {
    /// The value of the label `cloud.google.com/gke-tpu-accelerator`.
    pub gke_accelerator: &'static str,
    /// The machine type on GKE, before the number of chips and `t`.
    pub machine: &'static str,
    /// Shapes of at most 64 chips, or all of them where there are no cubes, each with the chips of one host.
    pub shapes: &'static [(&'static str, usize)],
    /// The largest slice of cubes of 4x4x4, in chips, on hosts of four. `None` if the chips form no cubes.
    pub cubes: Option<usize>,
    /// How a TPU VM is ordered. `None` if the Cloud TPU API does not have the generation.
    pub vm: Option<Vm>,
}

/// How a TPU VM of a generation is ordered with `gcloud compute tpus`.
pub struct Vm {
    /// The runtime version for programs that bring their own libtpu.
    pub runtime: &'static str,
    pub order: Order,
}

/// How `gcloud` names a slice.
pub enum Order {
    /// `--accelerator-type=PREFIX-CHIPS`.
    Chips(&'static str),
    /// `--type=TYPE --topology=SHAPE`. An accelerator type would leave the shape open.
    Shape(&'static str),
}

const FLAT: &[(&str, usize)] =
    &[("1x1", 1), ("2x2", 4), ("2x4", 8), ("4x4", 4), ("4x8", 4), ("8x8", 4), ("8x16", 4), ("16x16", 4)];

const CUBIC: &[(&str, usize)] = &[("2x2x1", 4), ("2x2x2", 4), ("2x2x4", 4), ("2x4x4", 4), ("4x4x4", 4)];

/// Returns the facts of a generation. `None` for one that `burn-tpu-runtime` knows and this table does not.
pub fn facts(generation: Generation) -> Option<Facts> {
    Some(match generation {
        Generation::V4 => Facts {
            gke_accelerator: "tpu-v4-podslice",
            machine: "ct4p-hightpu-",
            shapes: CUBIC,
            cubes: Some(4096),
            vm: Some(Vm { runtime: "tpu-ubuntu2204-base", order: Order::Shape("v4") }),
        },
        Generation::V5e => Facts {
            gke_accelerator: "tpu-v5-lite-podslice",
            machine: "ct5lp-hightpu-",
            shapes: FLAT,
            cubes: None,
            vm: Some(Vm { runtime: "v2-alpha-tpuv5-lite", order: Order::Chips("v5litepod") }),
        },
        Generation::V5p => Facts {
            gke_accelerator: "tpu-v5p-slice",
            machine: "ct5p-hightpu-",
            shapes: CUBIC,
            cubes: Some(6144),
            vm: Some(Vm { runtime: "v2-alpha-tpuv5", order: Order::Shape("v5p") }),
        },
        Generation::V6e => Facts {
            gke_accelerator: "tpu-v6e-slice",
            machine: "ct6e-standard-",
            shapes: FLAT,
            cubes: None,
            vm: Some(Vm { runtime: "v2-alpha-tpuv6e", order: Order::Chips("v6e") }),
        },
        Generation::Tpu7x => {
            Facts { gke_accelerator: "tpu7x", machine: "tpu7x-standard-", shapes: CUBIC, cubes: Some(9216), vm: None }
        }
        _ => return None,
    })
}

/// The tags of libtpu's wheel for `pip download`, which then takes the same file whatever Python asks.
pub const WHEEL_TAGS: &str = "--only-binary=:all: --platform=manylinux_2_31_x86_64 \\\n  \
     --python-version=3.11 --implementation=cp --abi=cp311";

/// Ports between the hosts of a slice: libtpu's own, and that of the store of process 0, which is `launch`'s default.
pub const LIBTPU_PORT: i32 = 8471;
pub const STORE_PORT: i32 = 8479;

/// The seconds that GKE gives the pods of a Spot node, unless its node pool is set to more: up to 120, from GKE 1.35 on.
pub const SPOT_GRACE: u32 = 15;
