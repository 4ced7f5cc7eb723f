//! A mesh of the CPU plugin, some devices of which belong to another process in the engine's eyes.

use super::*;
use burn_tpu_graph::DType;

/// Returns an engine of a mesh `data` of which this process has the devices at these positions; `None` without the
/// plugin.
fn engine(size: usize, positions: Vec<usize>) -> Option<MeshEngine> {
    burn_tpu_pjrt::testing::plugin(burn_tpu_pjrt::PluginKind::Cpu)?;
    let options = TpuOptions::default().cpu_devices(4).disk_cache(false);
    let (client, launches) = clients::client_of_mesh(Platform::Cpu, Some(4), &options).unwrap();
    let devices: Vec<Device> = (0..positions.len()).map(|index| client.device(index).unwrap()).collect();
    let ids = devices.iter().map(Device::id).collect();
    let start = CompileOptions::default().partitions(size).shardy(true).device_assignment(vec![ids]);
    // Each process has as many devices, one after another.
    let owners = (0..size).map(|position| position / positions.len()).collect();
    let mesh = Mesh::new(&[("data".to_owned(), size)]).unwrap();
    Some(MeshEngine {
        axes: MeshAxes { batch: vec![0], mesh },
        compiler: Compiler::new(&client, Platform::Cpu, start, &options, &Arc::default()),
        local: Arc::new(Local::new(devices, positions, owners).unwrap()),
        platform: Platform::Cpu,
        in_flight: InFlight::new(1),
        launches,
        gathers: Mutex::new(LruCache::new(MOST_GATHERS)),
    })
}

fn column(rows: usize) -> TensorType {
    TensorType::new(DType::U8, [rows, 1])
}

/// Returns the parts that this process has.
fn parts(buffer: &SharedBuffer) -> Vec<Vec<u8>> {
    let buffer: &MeshBuffer = downcast(buffer).unwrap();
    buffer.parts.iter().map(|part| part.to_host().unwrap()).collect()
}

#[test]
fn a_process_uploads_the_parts_of_its_own_devices() {
    let Some(engine) = engine(4, vec![2, 3]) else { return };
    let whole = engine.upload(&column(8), (0..8).collect::<Vec<u8>>().into(), None).unwrap();
    assert_eq!(parts(&whole), [[4, 5], [6, 7]]);
    let value: &MeshBuffer = downcast(&whole).unwrap();
    assert!(!value.is_here(), "the first half is elsewhere");
    let replicated = Sharding::replicated(2);
    let whole = engine.upload(&column(2), vec![8, 9].into(), Some(&replicated)).unwrap();
    assert_eq!(parts(&whole), [[8, 9], [8, 9]]);
    assert_eq!(engine.download(&whole).unwrap(), [8, 9], "a read of a replicated value is local");
}

#[test]
fn a_process_reads_and_uploads_its_own_parts_and_knows_whose_the_others_are() {
    let Some(engine) = engine(4, vec![2, 3]) else { return };
    let value = engine.upload(&column(8), (0..8).collect::<Vec<u8>>().into(), None).unwrap();
    let row = |first| Region { start: vec![first, 0], sizes: vec![2, 1] };
    let known = engine.parts(&value).unwrap().unwrap();
    let expected = [(0, 0), (2, 0), (4, 1), (6, 1)];
    assert_eq!(known, expected.map(|(first, process)| Part { region: row(first), processes: vec![process] }));
    assert_eq!(engine.download_parts(&value, &[row(6), row(4)]).unwrap(), [[6, 7], [4, 5]]);
    let error = engine.download_parts(&value, &[row(0)]).unwrap_err().to_string();
    assert!(error.contains("the part [0:2, 0:1]") && error.contains("not on a device of this process"), "{error}");

    let sharding = Sharding::first_dim(2, &[0]);
    assert_eq!(engine.regions(&column(8), &sharding), [row(4), row(6)]);
    let regions = vec![(row(6), vec![16, 17].into()), (row(4), vec![14, 15].into())];
    assert_eq!(parts(&engine.upload_regions(&column(8), &sharding, regions).unwrap()), [[14, 15], [16, 17]]);

    let replicated = engine.upload(&column(2), vec![8, 9].into(), Some(&Sharding::replicated(2))).unwrap();
    let whole = Region::whole(&[2, 1]);
    let part = Part { region: whole.clone(), processes: vec![0, 1] };
    assert_eq!(engine.parts(&replicated).unwrap().unwrap(), [part]);
    assert_eq!(engine.download_parts(&replicated, &[whole]).unwrap(), [[8, 9]]);
    let alone = self::engine(4, vec![0, 1, 2, 3]).unwrap();
    let value = alone.upload(&column(8), vec![0; 8].into(), None).unwrap();
    assert!(alone.parts(&value).unwrap().is_none(), "all of it is here");
}

#[test]
fn the_rows_of_a_process_are_its_part_of_the_batch() {
    let Some(other) = engine(4, vec![2, 3]) else { return };
    let (ty, value) = other.upload_rows(&column(4), vec![4, 5, 6, 7].into()).unwrap().unwrap();
    assert_eq!((ty, parts(&value)), (column(8), vec![vec![4, 5], vec![6, 7]]));
    let error = other.upload_rows(&column(3), vec![0; 3].into()).map(|_| ()).unwrap_err();
    assert!(matches!(error, TpuError::Sharding { .. }), "{error}");
    let alone = engine(4, vec![0, 1, 2, 3]).unwrap();
    assert!(alone.upload_rows(&column(4), vec![0; 4].into()).unwrap().is_none(), "they are the batch");
}

#[test]
fn a_gathered_value_is_whole_on_every_device() {
    let Some(engine) = engine(4, vec![0, 1, 2, 3]) else { return };
    let bytes: Vec<u8> = (0..8).collect();
    let value = engine.upload(&column(8), bytes.clone().into(), None).unwrap();
    for _ in 0..2 {
        assert_eq!(parts(&engine.gather(&value).unwrap()), vec![bytes.clone(); 4]);
    }
    assert_eq!(engine.download(&value).unwrap(), bytes, "the value is still there");
}

#[test]
fn devices_of_a_process_follow_each_other() {
    // Two hosts of a slice of 2 x 4 chips.
    assert_eq!(by_process([0, 0, 1, 1, 0, 0, 1, 1].into_iter()), [0, 1, 4, 5, 2, 3, 6, 7]);
    assert_eq!(by_process([0, 0, 0].into_iter()), [0, 1, 2]);
}
