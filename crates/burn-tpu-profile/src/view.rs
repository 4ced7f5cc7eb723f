//! Reading a plane: numbers become names, offsets become times.

use crate::xspace::{EventData, StatValue, XEvent, XEventMetadata, XLine, XPlane, XStat};
use std::ops::Range;

/// An event with its names. Times are in nanoseconds since the UNIX epoch.
#[derive(Clone, Copy)]
pub(crate) struct EventView<'p> {
    plane: &'p XPlane,
    line: &'p XLine,
    event: &'p XEvent,
    metadata: Option<&'p XEventMetadata>,
}

/// Returns the events of a line, without those that stand for several.
pub(crate) fn events<'p>(plane: &'p XPlane, line: &'p XLine) -> impl Iterator<Item = EventView<'p>> {
    let single = |event: &&XEvent| !matches!(event.data, Some(EventData::Occurrences(_)));
    line.events.iter().filter(single).map(move |event| {
        let metadata = plane.event_metadata.get(&event.metadata_id);
        EventView { plane, line, event, metadata }
    })
}

/// Returns a statistic of a plane itself.
pub(crate) fn plane_stat(plane: &XPlane, name: &str) -> Option<String> {
    find(plane, &plane.stats, name)
}

impl<'p> EventView<'p> {
    /// Returns the name that viewers show.
    pub(crate) fn name(&self) -> &'p str {
        let Some(metadata) = self.metadata else { return "" };
        if metadata.display_name.is_empty() { &metadata.name } else { &metadata.display_name }
    }

    /// Returns a statistic of the event or of its kind, as a text.
    pub(crate) fn stat(&self, name: &str) -> Option<String> {
        let of_kind = || find(self.plane, &self.metadata?.stats, name);
        find(self.plane, &self.event.stats, name).or_else(of_kind)
    }

    /// Returns all statistics with their names.
    pub(crate) fn stats(&self) -> impl Iterator<Item = (&'p str, String)> {
        let of_kind = self.metadata.map_or(&[][..], |metadata| &metadata.stats);
        let plane = self.plane;
        self.event.stats.iter().chain(of_kind).filter_map(move |stat| Some((name_of(plane, stat)?, text(plane, stat)?)))
    }

    /// Returns when it began and ended.
    pub(crate) fn time_ns(&self) -> Range<u64> {
        let offset_ps = match self.event.data {
            Some(EventData::OffsetPs(offset)) => offset,
            Some(EventData::Occurrences(_)) | None => 0,
        };
        let begin = self.line.timestamp_ns + offset_ps / 1000;
        // Both ends are rounded alike, so that events that follow each other still do.
        let end = self.line.timestamp_ns + offset_ps.saturating_add(self.event.duration_ps) / 1000;
        begin.max(0) as u64..end.max(0) as u64
    }
}

/// Returns the value of a statistic as a text, if it is among these.
pub(crate) fn find(plane: &XPlane, stats: &[XStat], name: &str) -> Option<String> {
    text(plane, stats.iter().find(|stat| name_of(plane, stat) == Some(name))?)
}

fn name_of<'p>(plane: &'p XPlane, stat: &XStat) -> Option<&'p str> {
    plane.stat_metadata.get(&stat.metadata_id).map(|metadata| metadata.name.as_str())
}

/// Returns a value as a text; `None` for bytes.
fn text(plane: &XPlane, stat: &XStat) -> Option<String> {
    Some(match stat.value.as_ref()? {
        StatValue::Double(number) => number.to_string(),
        StatValue::Unsigned(number) => number.to_string(),
        StatValue::Signed(number) => number.to_string(),
        StatValue::Text(text) => text.clone(),
        StatValue::Reference(id) => plane.stat_metadata.get(&i64::try_from(*id).ok()?)?.name.clone(),
        StatValue::Bytes(_) | StatValue::Compressed(_) => return None,
    })
}
