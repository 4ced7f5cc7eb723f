//! Building a plane: names become numbers, times become offsets.

use crate::xspace::{EventData, StatValue, XEvent, XEventMetadata, XLine, XPlane, XStat, XStatMetadata};
use std::collections::HashMap;
use std::ops::Range;

/// The value of a statistic.
#[derive(Clone, Debug, PartialEq)]
pub enum Stat {
    /// A text.
    Text(String),
    /// A number.
    Number(i64),
}

impl Stat {
    /// Returns a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }
}

/// A plane that is being built. Times are in nanoseconds since the UNIX epoch.
#[derive(Debug, Default)]
pub struct PlaneBuilder {
    plane: XPlane,
    kinds: HashMap<String, i64>,
    stats: HashMap<&'static str, i64>,
}

impl PlaneBuilder {
    /// Starts a plane without lines.
    pub fn new(name: impl Into<String>) -> Self {
        Self { plane: XPlane { name: name.into(), ..XPlane::default() }, ..Self::default() }
    }

    /// Adds a line and returns its place.
    pub fn line(&mut self, id: i64, name: impl Into<String>) -> usize {
        self.plane.lines.push(XLine { id, name: name.into(), ..XLine::default() });
        self.plane.lines.len() - 1
    }

    /// Adds an event to a line. Events of one line that overlap must nest.
    ///
    /// # Panics
    /// If there is no such line.
    pub fn event(
        &mut self,
        line: usize,
        name: &str,
        time_ns: Range<u64>,
        stats: impl IntoIterator<Item = (&'static str, Stat)>,
    ) {
        let stats = stats.into_iter().map(|(name, value)| self.stat(name, value)).collect();
        let metadata_id = self.kind(name);
        let duration_ps = time_ns.end.saturating_sub(time_ns.start) as i64 * 1000;
        // In nanoseconds since the epoch until `finish` knows the line's first event: picoseconds would not fit.
        let data = Some(EventData::OffsetPs(time_ns.start as i64));
        self.plane.lines[line].events.push(XEvent { metadata_id, data, duration_ps, stats });
    }

    /// Adds a statistic of the plane itself.
    pub fn plane_stat(&mut self, name: &'static str, value: Stat) {
        let stat = self.stat(name, value);
        self.plane.stats.push(stat);
    }

    /// Returns the plane, each line's events in the order of their begins.
    pub fn finish(mut self) -> XPlane {
        for line in &mut self.plane.lines {
            // Of events that begin together, the outer one first.
            line.events.sort_by_key(|event| (offset(event), -event.duration_ps));
            line.timestamp_ns = line.events.first().map_or(0, offset);
            for event in &mut line.events {
                event.data = Some(EventData::OffsetPs((offset(event) - line.timestamp_ns) * 1000));
            }
        }
        self.plane
    }

    fn kind(&mut self, name: &str) -> i64 {
        if let Some(&id) = self.kinds.get(name) {
            return id;
        }
        let id = self.kinds.len() as i64 + 1;
        self.kinds.insert(name.to_owned(), id);
        let metadata = XEventMetadata { id, name: name.to_owned(), ..XEventMetadata::default() };
        self.plane.event_metadata.insert(id, metadata);
        id
    }

    fn stat(&mut self, name: &'static str, value: Stat) -> XStat {
        let next = self.stats.len() as i64 + 1;
        let metadata_id = *self.stats.entry(name).or_insert(next);
        let metadata = XStatMetadata { id: metadata_id, name: name.to_owned(), ..XStatMetadata::default() };
        self.plane.stat_metadata.entry(metadata_id).or_insert(metadata);
        let value = match value {
            Stat::Text(text) => StatValue::Text(text),
            Stat::Number(number) => StatValue::Signed(number),
        };
        XStat { metadata_id, value: Some(value) }
    }
}

fn offset(event: &XEvent) -> i64 {
    match event.data {
        Some(EventData::OffsetPs(offset)) => offset,
        Some(EventData::Occurrences(_)) | None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A nanosecond time of today: in picoseconds it is close to the end of 64 bits.
    const NOW: u64 = 1_800_000_000_000_000_000;

    #[test]
    fn names_are_written_once_and_times_count_from_the_first_event() {
        let mut builder = PlaneBuilder::new("/device:CUSTOM:CPU:0");
        let line = builder.line(3, "programs");
        for begin in [5, 1] {
            builder.event(line, "step", begin * 1000..begin * 1000 + 10, [("n", Stat::Number(7))]);
        }
        let plane = builder.finish();
        assert_eq!((plane.event_metadata.len(), plane.stat_metadata.len()), (1, 1));
        let line = &plane.lines[0];
        assert_eq!((line.id, line.timestamp_ns), (3, 1000));
        let times: Vec<_> = line.events.iter().map(|event| (offset(event), event.duration_ps)).collect();
        assert_eq!(times, [(0, 10_000), (4_000_000, 10_000)]);
    }

    #[test]
    fn times_of_today_do_not_overflow() {
        let mut builder = PlaneBuilder::new("/host:CPU");
        let line = builder.line(1, "main");
        builder.event(line, "a", NOW..NOW + 2_000, []);
        builder.event(line, "b", NOW + 1_000..NOW + 1_500, []);
        let plane = builder.finish();
        assert_eq!(plane.lines[0].timestamp_ns, NOW as i64);
        assert_eq!(plane.lines[0].events[1].data, Some(EventData::OffsetPs(1_000_000)));
    }
}
