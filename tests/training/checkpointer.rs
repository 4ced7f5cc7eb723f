//! Checkpoints: a resumed run is the run itself, saving changes no program, and what is damaged or does not fit is named.

use crate::common;
use crate::resumable;

use burn::prelude::*;
use burn_tpu::{
    DeviceAdamW, Mesh, Patterns, Platform, Replicate, Tpu, TpuDevice, TpuOptions, compile_step, place, program_keys,
};
use burn_tpu_train::{Checkpoint, CheckpointError, Checkpointer, Restored};
use common::{alone, bf16_cpu, counted};
use resumable::Run;
use std::path::{Path, PathBuf};

/// Saves a checkpoint of a run and waits for it.
fn save(run: &Run, checkpoints: &mut Checkpointer) {
    checkpoints.save(run.checkpoint()).unwrap();
    checkpoints.wait().unwrap();
}

/// Returns a folder with the checkpoints of the steps 2 and 4, and the run after step 4.
fn saved(device: TpuDevice) -> (tempfile::TempDir, Run) {
    let folder = tempfile::tempdir().unwrap();
    let mut checkpoints = Checkpointer::open(folder.path()).unwrap();
    let run = Run::new(device, 1).until(2);
    save(&run, &mut checkpoints);
    let run = run.until(4);
    save(&run, &mut checkpoints);
    (folder, run)
}

fn of_step(folder: &Path, step: u64) -> PathBuf {
    folder.join(format!("step-{step:08}"))
}

/// Returns what restoring from a folder says.
fn restored(folder: &Path) -> Result<Option<Restored>, CheckpointError> {
    Checkpointer::open(folder).unwrap().restore()
}

fn same(found: &Run, expected: &Run) {
    assert_eq!(found.losses, expected.losses);
    for ((name, found), (_, expected)) in found.bytes().iter().zip(&expected.bytes()) {
        assert!(found == expected, "`{name}` differs");
    }
}

#[test]
fn a_resumed_run_is_the_run_itself() {
    let Some(device) = bf16_cpu() else { return };
    let _alone = alone();
    let expected = Run::new(device, 1).until(9);
    let (folder, _) = saved(device);
    // Of other weights and other random numbers.
    let fresh = Run::new(device, 2);
    let found = fresh.restore(&restored(folder.path()).unwrap().unwrap()).until(9);
    same(&found, &expected);
}

#[test]
fn a_run_on_a_mesh_is_resumed_with_its_parameters_in_place() {
    let Some(one) = bf16_cpu() else { return };
    let _alone = alone();
    let device = TpuDevice::mesh(Mesh::new().axis("data", 2).on(Platform::Cpu).devices([1, 0]));
    let options = TpuOptions::development().cpu_devices(common::CPU_DEVICES).check_numerics(false);
    options.interpret_from(0).install(&device).ok();
    let placed = |mut run: Run| {
        run.model = place(run.model, &Replicate).unwrap();
        run
    };
    let expected = placed(Run::new(device, 1)).until(4);
    let folder = tempfile::tempdir().unwrap();
    let mut checkpoints = Checkpointer::open(folder.path()).unwrap();
    let run = placed(Run::new(device, 1)).until(2);
    save(&run, &mut checkpoints);
    let saved = checkpoints.restore().unwrap().unwrap();
    let (found, count) = counted(&device, || placed(Run::new(device, 2)).restore(&saved).until(4));
    same(&found, &expected);
    // The first weights, and nothing else: the steps are those of before.
    assert!(count.compiles <= 2, "{count:?}");
    // The same values on one chip.
    assert_eq!(Run::new(one, 3).restore(&saved).bytes()[0], run.bytes()[0]);
}

#[test]
fn a_model_that_is_split_is_restored_on_other_meshes_bit_for_bit() {
    if !common::has_cpu_plugin() {
        return;
    }
    let one = TpuDevice::ndarray();
    let _alone = alone();
    use burn::nn::LinearConfig;
    type B = Tpu<f32>;
    let mesh = |axes: &[(&str, usize)]| {
        let mesh = axes.iter().fold(Mesh::new().on(Platform::Cpu), |mesh, &(name, size)| mesh.axis(name, size));
        let device = TpuDevice::mesh(mesh);
        let options = TpuOptions::development().cpu_devices(common::CPU_DEVICES).check_numerics(false);
        options.interpret_from(0).install(&device).ok();
        device
    };
    let model = |device: &TpuDevice, dim: usize| {
        let model = LinearConfig::new(32, 64).with_bias(false).init::<B>(device);
        let axes = [[Some("fsdp"), None], [None, Some("fsdp")]][dim];
        place(model, &Patterns::new().add("weight", axes)).unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    let mut checkpoints = Checkpointer::open(folder.path()).unwrap();
    let (two, four) = (mesh(&[("fsdp", 2)]), mesh(&[("data", 2), ("fsdp", 2)]));
    let saved = model(&two, 0);
    checkpoints.save(Checkpoint::new(1).model("model", &saved)).unwrap();
    checkpoints.wait().unwrap();
    let expected = saved.weight.val().into_data();
    // The same split, columns, columns with copies, and no chip.
    let fresh =
        [model(&two, 0), model(&two, 1), model(&four, 1), LinearConfig::new(32, 64).with_bias(false).init(&one)];
    for fresh in fresh {
        let read = Restored::read(of_step(folder.path(), 1)).unwrap();
        let found = read.model("model", fresh).unwrap();
        assert_eq!(found.weight.val().into_data(), expected);
        assert_eq!(read.bytes_read(), 32 * 64 * 4);
    }
}

#[test]
fn saving_changes_no_program() {
    let Some(device) = bf16_cpu() else { return };
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let mut checkpoints = Checkpointer::open(folder.path()).unwrap().keep_last(2);
    let mut run = Run::new(device, 1).until(4);
    let keys = program_keys(&device);
    let step = |run: &mut Run| counted(&device, || run.step()).1;
    let (alone, freed) = (step(&mut run), step(&mut run));
    assert_eq!(alone.donated, freed.donated);
    for _ in 0..6 {
        checkpoints.save(run.checkpoint()).unwrap();
        let count = step(&mut run);
        assert_eq!((count.compiles, count.executions), (0, alone.executions), "{count:?}");
        assert!(count.donated <= alone.donated);
    }
    checkpoints.wait().unwrap();
    assert_eq!(step(&mut run).donated, alone.donated, "nothing is held any more");
    assert_eq!(program_keys(&device), keys);
    assert_eq!(checkpoints.steps().unwrap(), [10, 11]);
}

#[test]
fn tensors_have_names_that_people_can_read() {
    let Some(device) = bf16_cpu() else { return };
    let _alone = alone();
    let (folder, run) = saved(device);
    let read = |part: &str| std::fs::read(of_step(folder.path(), 4).join(part)).unwrap();
    let types = |bytes: &[u8]| {
        let file = safetensors::SafeTensors::deserialize(bytes).unwrap();
        let mut types: Vec<_> = file.tensors().into_iter().map(|(name, t)| format!("{name} {}", t.dtype())).collect();
        types.sort();
        types
    };
    let model = types(&read("model.safetensors"));
    for name in ["tokens.weight BF16", "norm.running_mean BF16", "encoder.layers.0.mha.query.weight BF16"] {
        assert!(model.iter().any(|found| found == name), "{name} is not in {model:?}");
    }
    assert_eq!(model.len(), burn::module::list_param_ids(&run.model).len());
    let optimizer = types(&read("optimizer.safetensors"));
    for field in ["master", "momentum.moment_1", "momentum.moment_2"] {
        assert!(optimizer.contains(&format!("tokens.weight.{field} F32")), "{field} is not in {optimizer:?}");
    }
    let tensors: usize = [read("model.safetensors"), read("optimizer.safetensors")]
        .iter()
        .map(|bytes| safetensors::SafeTensors::read_metadata(bytes).unwrap().1.data_len())
        .sum();
    let files = std::fs::read_dir(of_step(folder.path(), 4)).unwrap();
    let bytes: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes as usize > tensors && tensors > 100_000, "{bytes} bytes of {tensors}");
}

/// A change of a file's bytes.
type Damage = fn(&mut Vec<u8>);

/// Changes one bit.
fn flip(bytes: &mut [u8]) {
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
}

#[test]
fn a_damaged_checkpoint_is_named_and_the_one_before_it_used() {
    let Some(device) = bf16_cpu() else { return };
    let _alone = alone();
    let (folder, _) = saved(device);
    let newest = of_step(folder.path(), 4);
    let original = |name: &str| std::fs::read(newest.join(name)).unwrap();
    let names = ["model.safetensors", "optimizer.safetensors", "state.cbor", "manifest.json"];
    let damages: [(&str, Damage); 3] = [
        ("truncated", |bytes| bytes.truncate(bytes.len() - 1)),
        ("flipped", |bytes| flip(bytes)),
        ("empty", Vec::clear),
    ];
    for name in names {
        let bytes = original(name);
        for (what, damage) in &damages {
            let mut damaged = bytes.clone();
            damage(&mut damaged);
            std::fs::write(newest.join(name), damaged).unwrap();
            let said = Restored::read(&newest).and_then(|saved| saved.verify()).unwrap_err().to_string();
            assert!(said.contains("step-00000004") && said.contains(name), "{name}, {what}: {said}");
            assert_eq!(restored(folder.path()).unwrap().unwrap().step(), 2, "{name}, {what}");
        }
        std::fs::rename(newest.join(name), newest.join("elsewhere")).unwrap();
        assert_eq!(restored(folder.path()).unwrap().unwrap().step(), 2, "{name}, renamed");
        std::fs::remove_file(newest.join("elsewhere")).unwrap();
        std::fs::write(newest.join(name), bytes).unwrap();
    }
    assert_eq!(restored(folder.path()).unwrap().unwrap().step(), 4);
    std::fs::rename(&newest, of_step(folder.path(), 9)).unwrap();
    let said = Restored::read(of_step(folder.path(), 9)).unwrap_err().to_string();
    assert!(said.contains("the folder was renamed"), "{said}");
    // Of none that is intact, each is named.
    std::fs::remove_file(of_step(folder.path(), 2).join("state.cbor")).unwrap();
    let said = restored(folder.path()).unwrap_err().to_string();
    assert!(said.contains("step-00000009") && said.contains("step-00000002` is damaged: `state.cbor`"), "{said}");
}

#[test]
fn another_version_is_no_damage() {
    let Some(device) = bf16_cpu() else { return };
    let _alone = alone();
    let (folder, _) = saved(device);
    let manifest = of_step(folder.path(), 4).join("manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap().replace("\"version\":2", "\"version\":7");
    std::fs::write(&manifest, text).unwrap();
    let said = restored(folder.path()).unwrap_err().to_string();
    assert!(said.contains("has format version 7, and this program reads version 2"), "{said}");
}

#[test]
fn two_runs_on_one_folder_are_an_error_that_names_it() {
    let _alone = common::alone();
    let folder = tempfile::tempdir().unwrap();
    let first = Checkpointer::open(folder.path()).unwrap();
    let said = Checkpointer::open(folder.path()).unwrap_err().to_string();
    let process = format!("(process {})", std::process::id());
    assert!(said.contains(&process) && said.contains(&folder.path().display().to_string()), "{said}");
    drop(first);
    assert!(Checkpointer::open(folder.path()).unwrap().restore().unwrap().is_none());
}

#[test]
fn what_does_not_fit_is_listed_and_loaded_in_part_when_asked() {
    let Some(device) = bf16_cpu() else { return };
    let _alone = alone();
    let (folder, _) = saved(device);
    let saved = Restored::read(of_step(folder.path(), 4)).unwrap();
    let wide = Run::sized(device, 1, 64);
    let said = saved.model("model", wide.model.clone()).unwrap_err().to_string();
    assert!(said.contains("different: encoder.layers.0"), "{said}");
    assert!(said.contains("tokens.weight (BF16 [32, 32] instead of BF16 [32, 64])"), "{said}");
    let said = saved.optimizer("optimizer", wide.optimizer.clone(), &wide.model).err().unwrap().to_string();
    assert!(said.contains("tokens.weight.master (F32 [32, 32], of BF16 [32, 64])"), "{said}");
    // The bias of the head has the same size.
    let saved = saved.partial();
    let part = saved.model("model", wide.model.clone()).unwrap();
    let fit = Run::new(device, 1).restore(&Restored::read(of_step(folder.path(), 4)).unwrap());
    let heads = [&part, &fit.model].map(|model| format!("{:?}", bias(model)));
    assert_eq!(heads[0], heads[1]);
    assert!(saved.optimizer("optimizer", wide.optimizer, &wide.model).is_ok());
    let said = saved.value::<String>("losses").unwrap_err().to_string();
    assert!(said.contains("the part `losses` is not a `alloc::string::String`"), "{said}");
    let said = saved.value::<u64>("loss").unwrap_err().to_string();
    assert!(said.contains("has no value `loss`; it has: losses"), "{said}");
}

/// Returns the values of the head's bias.
fn bias(model: &resumable::Gpt<resumable::B>) -> Vec<f32> {
    use burn::module::{ModuleVisitor, Param};
    struct Last(Vec<f32>);
    impl<B: Backend> ModuleVisitor<B> for Last {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            self.0 = param.val().into_data().iter::<f32>().collect();
        }
    }
    let mut last = Last(Vec::new());
    model.visit(&mut last);
    last.0
}

#[test]
fn names_are_those_of_files_and_unique() {
    let _alone = common::alone();
    let folder = tempfile::tempdir().unwrap();
    let mut checkpoints = Checkpointer::open(folder.path()).unwrap();
    for checkpoint in [
        Checkpoint::new(1).value("a/b", &1),
        Checkpoint::new(1).value("", &1),
        Checkpoint::new(1).value("twice", &1).value("twice", &2),
    ] {
        assert!(matches!(checkpoints.save(checkpoint), Err(CheckpointError::Name(_))));
    }
    assert!(checkpoints.steps().unwrap().is_empty());
}

#[test]
fn values_come_back_as_they_were() {
    let _alone = common::alone();
    let folder = tempfile::tempdir().unwrap();
    let mut checkpoints = Checkpointer::open(folder.path()).unwrap();
    let value = (f64::INFINITY, 0.1f64 + 0.2, u64::MAX, "words".to_owned(), vec![Some(-1i64), None]);
    checkpoints.save(Checkpoint::new(u64::MAX).value("position", &value)).unwrap();
    checkpoints.wait().unwrap();
    let saved = checkpoints.restore().unwrap().unwrap();
    assert_eq!(saved.step(), u64::MAX);
    let found: (f64, f64, u64, String, Vec<Option<i64>>) = saved.value("position").unwrap();
    assert_eq!(found, value);
}

#[test]
fn what_was_left_unfinished_is_removed_and_a_step_is_saved_again() {
    let _alone = common::alone();
    let folder = tempfile::tempdir().unwrap();
    for left in [".writing-step-00000007", ".removing-step-00000003"] {
        std::fs::create_dir(folder.path().join(left)).unwrap();
        std::fs::write(folder.path().join(left).join("model.safetensors"), "half").unwrap();
    }
    let mut checkpoints = Checkpointer::open(folder.path()).unwrap().keep_last(1).keep_every(4);
    let entries = || std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!((entries(), checkpoints.restore().unwrap().is_none()), (1, true), "the lock alone");
    for step in [2, 4, 6, 6, 8, 9] {
        checkpoints.save(Checkpoint::new(step).value("step", &(step, entries()))).unwrap();
    }
    checkpoints.wait().unwrap();
    assert_eq!(checkpoints.steps().unwrap(), [4, 8, 9]);
    assert_eq!(entries(), 4);
}

#[test]
fn a_compiled_step_is_resumed() {
    let Some(device) = bf16_cpu() else { return };
    let _alone = alone();
    use burn::nn::{Linear, LinearConfig};
    type A = resumable::B;
    let build = |seed| {
        A::seed(&device, seed);
        let model = LinearConfig::new(80, 64).init::<A>(&device);
        compile_step(model, DeviceAdamW::new(), |model: &Linear<A>, x: Tensor<Tpu, 2>| {
            let x = Tensor::<A, 2>::from_inner(x);
            let loss = (model.forward(x.clone()) - x.mean_dim(1)).powi_scalar(2).mean();
            (loss.clone(), loss.inner())
        })
    };
    let x = || Tensor::<Tpu, 2>::ones([4, 80], &device);
    let folder = tempfile::tempdir().unwrap();
    let mut checkpoints = Checkpointer::open(folder.path()).unwrap();
    let mut expected = build(1);
    for step in 0..6 {
        if step == 3 {
            let model = expected.model();
            let checkpoint = Checkpoint::new(3).model("model", &model).compiled_step("state", &expected);
            checkpoints.save(checkpoint).unwrap();
        }
        expected.run(1e-2, x()).unwrap();
    }
    checkpoints.wait().unwrap();
    let saved = checkpoints.restore().unwrap().unwrap();
    let mut found = build(2);
    saved.compiled_step("model", "state", &mut found).unwrap();
    for _ in 3..6 {
        found.run(1e-2, x()).unwrap();
    }
    let weights = |model: Linear<A>| (model.weight.val().into_data(), model.bias.unwrap().val().into_data());
    assert_eq!(weights(found.into_model()), weights(expected.into_model()));
}
