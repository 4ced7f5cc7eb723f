//! The trace of a profile in the JSON format of Chrome's trace viewer, which <https://ui.perfetto.dev> opens.
//!
//! Planes are processes, lines are threads, events are complete events (`ph: X`) with their statistics as arguments. Times
//! are in microseconds after the first event of the profile.

use crate::view::{EventView, events};
use crate::xspace::{XLine, XPlane, XSpace};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Map, Value, json};
use std::io::Write;

/// The most events of a trace: Perfetto becomes slow beyond. Further ones are in the XSpace alone.
const MOST_EVENTS: usize = 1_000_000;

/// Returns the trace, compressed with gzip.
pub fn gzipped(space: &XSpace) -> Vec<u8> {
    let text = trace(space).to_string();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail.
    let _ = encoder.write_all(text.as_bytes());
    encoder.finish().unwrap_or_default()
}

/// Returns the trace.
pub fn trace(space: &XSpace) -> Value {
    let lines = || space.planes.iter().flat_map(|plane| plane.lines.iter().map(move |line| (plane, line)));
    let begins = lines().flat_map(|(plane, line)| events(plane, line)).map(|event| event.time_ns().start);
    let origin = begins.min().unwrap_or(0);
    let mut rows = Vec::new();
    for (process, plane) in space.planes.iter().enumerate() {
        rows.push(named("process_name", &plane.name, process, None));
        plane.lines.iter().for_each(|line| rows.push(named("thread_name", name_of(line), process, Some(line.id))));
    }
    let process = |plane: &XPlane| space.planes.iter().position(|other| std::ptr::eq(other, plane)).unwrap_or(0);
    let all = lines().flat_map(|(plane, line)| events(plane, line).map(move |event| (plane, line, event)));
    rows.extend(all.take(MOST_EVENTS).map(|(plane, line, event)| row(process(plane), line.id, &event, origin)));
    json!({ "displayTimeUnit": "ms", "traceEvents": rows })
}

fn name_of(line: &XLine) -> &str {
    if line.display_name.is_empty() { &line.name } else { &line.display_name }
}

fn named(what: &str, name: &str, process: usize, thread: Option<i64>) -> Value {
    json!({ "ph": "M", "name": what, "pid": process, "tid": thread.unwrap_or(0), "args": { "name": name } })
}

fn row(process: usize, thread: i64, event: &EventView, origin: u64) -> Value {
    let time = event.time_ns();
    let microseconds = |ns: u64| ns as f64 / 1e3;
    let arguments: Map<String, Value> = event.stats().map(|(name, value)| (name.to_owned(), value.into())).collect();
    json!({
        "ph": "X", "name": event.name(), "pid": process, "tid": thread, "args": arguments,
        "ts": microseconds(time.start.saturating_sub(origin)), "dur": microseconds(time.end - time.start),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PlaneBuilder, Stat};
    use flate2::read::GzDecoder;
    use std::io::Read;

    #[test]
    fn planes_are_processes_and_lines_are_threads() {
        let mut plane = PlaneBuilder::new("/device:CUSTOM:CPU:0");
        let line = plane.line(4, "programs");
        plane.event(line, "step", 7_000..9_500, [("burn_ops", Stat::text("float_add"))]);
        let mut other = PlaneBuilder::new("/host:CPU");
        let line = other.line(5, "main");
        other.event(line, "cut", 6_000..6_500, []);
        let space = XSpace { planes: vec![plane.finish(), other.finish()], ..XSpace::default() };
        let mut text = String::new();
        GzDecoder::new(&gzipped(&space)[..]).read_to_string(&mut text).unwrap();
        let trace: Value = serde_json::from_str(&text).unwrap();
        let rows = trace["traceEvents"].as_array().unwrap();
        assert_eq!(rows[0]["args"]["name"], "/device:CUSTOM:CPU:0");
        assert_eq!((&rows[1]["args"]["name"], &rows[1]["tid"]), (&json!("programs"), &json!(4)));
        let step = rows.iter().find(|row| row["name"] == "step").unwrap();
        assert_eq!((&step["ts"], &step["dur"], &step["pid"]), (&json!(1.0), &json!(2.5), &json!(0)));
        assert_eq!(step["args"]["burn_ops"], "float_add");
    }
}
