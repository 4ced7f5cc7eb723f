//! Joining the profiles of a plugin and of the host. XProf reads one plane of each name, and both have one of the host's
//! threads.

use crate::xspace::{StatValue, XPlane, XSpace, XStat};
use std::collections::BTreeMap;

/// Adds the planes of `own` to those of `space`; the lines of a plane whose name is there already go into that plane.
pub(crate) fn merge(space: &mut XSpace, own: &XSpace) {
    for plane in &own.planes {
        match space.planes.iter_mut().find(|known| known.name == plane.name) {
            Some(known) => absorb(known, plane.clone()),
            None => space.planes.push(plane.clone()),
        }
    }
    space.warnings.extend(own.warnings.iter().cloned());
    space.hostnames = own.hostnames.clone();
}

/// Moves lines and statistics of a plane into another, under numbers that are free there.
fn absorb(plane: &mut XPlane, other: XPlane) {
    let free = |taken: Option<i64>| taken.map_or(1, |last| last + 1);
    let first_kind = free(plane.event_metadata.keys().max().copied());
    let first_line = free(plane.lines.iter().map(|line| line.id).max());
    let stats = numbers_of_stats(plane, &other);
    let renumber = |list: &mut [XStat]| list.iter_mut().for_each(|stat| renumber(stat, &stats));
    for (id, mut kind) in other.event_metadata {
        renumber(&mut kind.stats);
        kind.id = id + first_kind;
        plane.event_metadata.insert(kind.id, kind);
    }
    for mut line in other.lines {
        line.id += first_line;
        for event in &mut line.events {
            event.metadata_id += first_kind;
            renumber(&mut event.stats);
        }
        plane.lines.push(line);
    }
    let mut own = other.stats;
    renumber(&mut own);
    plane.stats.extend(own);
}

fn renumber(stat: &mut XStat, stats: &BTreeMap<i64, i64>) {
    let new = |id: i64| stats.get(&id).copied().unwrap_or(id);
    stat.metadata_id = new(stat.metadata_id);
    if let Some(StatValue::Reference(id)) = &mut stat.value {
        *id = new(*id as i64) as u64;
    }
}

/// Returns the number in `plane` of each statistic of `other`. A name has one number in a plane, and gets one if it has
/// none.
fn numbers_of_stats(plane: &mut XPlane, other: &XPlane) -> BTreeMap<i64, i64> {
    let mut numbers = BTreeMap::new();
    for (&id, stat) in &other.stat_metadata {
        let known = plane.stat_metadata.values().find(|known| known.name == stat.name).map(|known| known.id);
        let number = known.unwrap_or_else(|| {
            let number = plane.stat_metadata.keys().max().map_or(1, |last| last + 1);
            let mut stat = stat.clone();
            stat.id = number;
            plane.stat_metadata.insert(number, stat);
            number
        });
        numbers.insert(id, number);
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::events;
    use crate::{PlaneBuilder, Stat};

    fn space(name: &str, event: &str, stats: &[(&'static str, &str)]) -> XSpace {
        let mut plane = PlaneBuilder::new(name);
        let line = plane.line(7, event);
        plane.event(line, event, 5..9, stats.iter().map(|&(name, text)| (name, Stat::text(text))));
        XSpace { planes: vec![plane.finish()], hostnames: vec!["host".into()], ..XSpace::default() }
    }

    #[test]
    fn lines_of_one_host_are_in_one_plane_under_names_of_their_own() {
        let mut joined = space("/host:CPU", "of the plugin", &[("a", "1"), ("b", "2")]);
        merge(&mut joined, &space("/host:CPU", "ours", &[("b", "3"), ("c", "4")]));
        merge(&mut joined, &space("/device:CUSTOM:cpu:0", "program", &[]));
        assert_eq!(joined.planes.len(), 2);
        let host = &joined.planes[0];
        let ids: Vec<i64> = host.lines.iter().map(|line| line.id).collect();
        assert!(ids[0] != ids[1], "{ids:?}");
        let found: Vec<_> = host.lines.iter().flat_map(|line| events(host, line)).collect();
        let text = |event: usize| {
            let stats: Vec<_> = found[event].stats().map(|(name, value)| format!("{name}={value}")).collect();
            format!("{} {}", found[event].name(), stats.join(" "))
        };
        assert_eq!((text(0), text(1)), ("of the plugin a=1 b=2".into(), "ours b=3 c=4".into()));
        assert_eq!(host.stat_metadata.len(), 3, "a name has one number");
    }
}
