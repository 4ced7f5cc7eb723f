//! The messages of a profile, whole. Names and field numbers are those of `tsl/profiler/protobuf/xplane.proto`.

use prost::Message;
use std::collections::BTreeMap;

/// The events of a host and its devices.
#[derive(Clone, PartialEq, Message)]
pub struct XSpace {
    /// One plane for each device, and one for the host's threads.
    #[prost(message, repeated, tag = "1")]
    pub planes: Vec<XPlane>,
    /// What kept a profiler from collecting.
    #[prost(string, repeated, tag = "2")]
    pub errors: Vec<String>,
    /// What a profiler left out.
    #[prost(string, repeated, tag = "3")]
    pub warnings: Vec<String>,
    /// The host's name.
    #[prost(string, repeated, tag = "4")]
    pub hostnames: Vec<String>,
}

/// A device, or the threads of a host.
#[derive(Clone, PartialEq, Message)]
pub struct XPlane {
    /// The number of the plane.
    #[prost(int64, tag = "1")]
    pub id: i64,
    /// The name, which says what the plane is: `/device:TPU:0`, `/host:CPU`.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Queues or threads.
    #[prost(message, repeated, tag = "3")]
    pub lines: Vec<XLine>,
    /// What events of one kind have in common, by the kind's number.
    #[prost(btree_map = "int64, message", tag = "4")]
    pub event_metadata: BTreeMap<i64, XEventMetadata>,
    /// The names of statistics, by their number.
    #[prost(btree_map = "int64, message", tag = "5")]
    pub stat_metadata: BTreeMap<i64, XStatMetadata>,
    /// Statistics of the plane itself.
    #[prost(message, repeated, tag = "6")]
    pub stats: Vec<XStat>,
}

/// A queue of a device, or a thread: its events nest or follow one another.
#[derive(Clone, PartialEq, Message)]
pub struct XLine {
    /// The number of the line.
    #[prost(int64, tag = "1")]
    pub id: i64,
    /// The name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The time in nanoseconds, since the UNIX epoch, from which events count.
    #[prost(int64, tag = "3")]
    pub timestamp_ns: i64,
    /// The events.
    #[prost(message, repeated, tag = "4")]
    pub events: Vec<XEvent>,
    /// The duration of the line in picoseconds; 0 if unknown.
    #[prost(int64, tag = "9")]
    pub duration_ps: i64,
    /// The number by which viewers group lines; 0 for `id`.
    #[prost(int64, tag = "10")]
    pub display_id: i64,
    /// The name that viewers show; empty for `name`.
    #[prost(string, tag = "11")]
    pub display_name: String,
}

/// One event.
#[derive(Clone, PartialEq, Message)]
pub struct XEvent {
    /// The number of its kind.
    #[prost(int64, tag = "1")]
    pub metadata_id: i64,
    /// When, or how often.
    #[prost(oneof = "EventData", tags = "2, 5")]
    pub data: Option<EventData>,
    /// How long, in picoseconds.
    #[prost(int64, tag = "3")]
    pub duration_ps: i64,
    /// What else is known.
    #[prost(message, repeated, tag = "4")]
    pub stats: Vec<XStat>,
}

/// When an event began, or how often it occurred.
#[derive(Clone, Copy, PartialEq, prost::Oneof)]
pub enum EventData {
    /// The begin in picoseconds after the line's `timestamp_ns`.
    #[prost(int64, tag = "2")]
    OffsetPs(i64),
    /// The number of occurrences of an event that stands for several.
    #[prost(int64, tag = "5")]
    Occurrences(i64),
}

/// A statistic.
#[derive(Clone, PartialEq, Message)]
pub struct XStat {
    /// The number of its name.
    #[prost(int64, tag = "1")]
    pub metadata_id: i64,
    /// Its value.
    #[prost(oneof = "StatValue", tags = "2, 3, 4, 5, 6, 7, 8")]
    pub value: Option<StatValue>,
}

/// The value of a statistic.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum StatValue {
    /// A number.
    #[prost(double, tag = "2")]
    Double(f64),
    /// A number.
    #[prost(uint64, tag = "3")]
    Unsigned(u64),
    /// A number.
    #[prost(int64, tag = "4")]
    Signed(i64),
    /// A text.
    #[prost(string, tag = "5")]
    Text(String),
    /// Bytes, such as a message.
    #[prost(bytes = "vec", tag = "6")]
    Bytes(Vec<u8>),
    /// A text: the name of this statistic.
    #[prost(uint64, tag = "7")]
    Reference(u64),
    /// A text, compressed with gzip.
    #[prost(bytes = "vec", tag = "8")]
    Compressed(Vec<u8>),
}

/// What events of one kind have in common.
#[derive(Clone, PartialEq, Message)]
pub struct XEventMetadata {
    /// The number of the kind.
    #[prost(int64, tag = "1")]
    pub id: i64,
    /// The name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// A message of the plugin's own.
    #[prost(bytes = "vec", tag = "3")]
    pub metadata: Vec<u8>,
    /// The name that viewers show; empty for `name`.
    #[prost(string, tag = "4")]
    pub display_name: String,
    /// Statistics that all events of the kind have.
    #[prost(message, repeated, tag = "5")]
    pub stats: Vec<XStat>,
    /// The kinds of the events inside.
    #[prost(int64, repeated, tag = "6")]
    pub child_id: Vec<i64>,
}

/// The name of a statistic.
#[derive(Clone, PartialEq, Message)]
pub struct XStatMetadata {
    /// The number of the name.
    #[prost(int64, tag = "1")]
    pub id: i64,
    /// The name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// What it means.
    #[prost(string, tag = "3")]
    pub description: String,
}
