"""The short form of every kind of event, effect, message and record in a trace: what matters of it.

A form is a text with fields in braces. What stands between ``<`` and ``>`` is left out if its first
field is empty, zero or false; a field that is true gives its name. How values are written is in
:mod:`.telling`. A kind without a form is told by its name and its fields.
"""

from __future__ import annotations

from typing import Final

from gapless.core import machine
from gapless.messages import clients, mobility, overlay, propagation, records, staging, streams
from gapless.messages import pubend_requests as requests

__all__ = ["FORMS"]

_STEPS: Final[dict[type, str]] = {
    machine.LinkUp: "link to {peer} is up",
    machine.LinkDown: "link to {peer} is down",
    machine.LinkFull: "link to {peer} is full",
    machine.LinkFree: "link to {peer} is free",
    machine.Received: "from {peer} {packet}",
    machine.ClientUp: "{client} connects",
    machine.ClientDown: "{client} is gone",
    machine.ClientFull: "{client} is full",
    machine.ClientFree: "{client} is free",
    machine.Asked: "{client} asks {request}",
    machine.Stopping: "is told to stop",
    machine.Written: "write {ticket} is on disk",
    machine.Fetched: "fetch {ticket} gives {rows}< damaged {damaged}>< {complete}>",
    machine.Send: "to {peer} {packet}",
    machine.Tell: "tells {client} {notice}",
    machine.Dismiss: "dismisses {client}: {reason}",
    machine.Write: "write {ticket}<: {changes}>",
    machine.Fetch: "fetch {ticket} of {pubend} [{low}, {high}]",
}

_OVERLAY: Final[dict[type, str]] = {
    overlay.CellInfo: "{name} {brokers} by {neighbours}",
    overlay.SessionId: "{life}/{number}",
    overlay.Hello: "Hello {own}< heard {heard}>",
    overlay.Packet: "{sender} #{sequence}: {messages}",
    overlay.TableState: "{direction} v{version}",
    overlay.Heartbeat: "Heartbeat {sequence} echo {echo}< tables {tables}>",
    overlay.RelayProbe: "RelayProbe {number} for {target} by {path}",
    overlay.Relayed: "Relayed {path} at {index}: {inner}",
    overlay.RelayBroken: "RelayBroken {route}",
    overlay.RelayFull: "RelayFull {route}",
    overlay.PubendProperties: "{broker}@{cell} {advertisement}< {quality}>",
    overlay.Announce: "Announce {pubend} v{version} {properties} path {path}< {tombstone}>",
    overlay.Partition: "{detector}/{counter} of {cells}",
    overlay.PartitionInfo: "PartitionInfo {partition}< {formed}> hops left {hops_left}",
    overlay.NameAsk: "NameAsk {name} by {asker} {number}",
    overlay.NameAnswer: "NameAnswer {key} {verdict}< at {broker}>",
    overlay.Retire: "Retire {broker}@{cell} v{version}< back {back}>",
    mobility.Superseded: "Superseded {birth} epoch {epoch} at {home}",
}

_TABLES: Final[dict[type, str]] = {
    propagation.TableId: "{broker}/{direction}",
    propagation.TableWant: "TableWant {direction}< has {have} v{version}>",
    propagation.TableStop: "TableStop {direction}",
    propagation.TableFull: (
        "TableFull {table} v{version} part {part}/{parts}"
        "< wants {conjunctions}>< entries {entries}>< known {known}>< late {late}>"
    ),
    # R19: the version of the base is VT's constraint in one number; the entries at it are told too
    propagation.TableDelta: (
        "TableDelta {table} v{base} to v{version} if {constraint}"
        "< adds {added}>< removes {removed}>< entries {entries}>< forgets {forgotten}>"
        "< known {known}>< unknown {unknown}>< late {late}>"
    ),
}

_STREAMS: Final[dict[type, str]] = {
    streams.Publication: "{tick} {publisher}/{sequence} {attributes}< {payload}>",
    streams.Piece: "[{low}, {high}] r{regime}< cv{control_version}>< {publications}>",
    streams.Attach: "Attach {pubend} #{number} {kind} {receiver}< {eager}>",
    streams.Attached: "Attached {pubend} #{number} above {at}< {relayed}>",
    streams.Unfed: "Unfed {pubend} #{number} {reason}",
    streams.Detach: "Detach {pubend} #{number}",
    streams.Frame: "Frame {pubend} #{number}< {first}> {piece}",
    streams.Silence: "Silence {pieces}",
    streams.Regime: (
        "Regime {pubend} r{number} from {start}< over r{base}> {entries}< forgets {forgotten}>"
    ),
    streams.RegimeWant: "RegimeWant {pubend} r{number}",
    streams.Nack: "Nack {pubend} {ranges}",
    streams.Released: "Released {pubend} up to {up_to}",
    streams.Unreadable: "Unreadable {pubend} [{low}, {high}]: {reason}",
    streams.Member: "{shb} joined {join} at {time}< {durable}>",
    streams.SetDefine: "SetDefine {number} {members}",
    streams.SetForget: "SetForget {number}",
    streams.Report: "Report of set {set_number} {acknowledged}",
    streams.AckExpected: "AckExpected {pubend} {tick}< {pressure}>",
    streams.Advance: "Advance {pubend} {tick}",
    requests.HoldId: "{shb}/{subscription}",
    requests.Read: (
        "Read {request} of {asker}: {pubend} [{low}, {high}] {filter}"
        "< hold {hold} above {hold_tick}>< newcomer {newcomer}>< of {hosts}>< {form}>"
    ),
    requests.ReadReply: (
        "ReadReply {request}: {pubend} done {done} top {top} released {released}"
        "< gone {gone}>< {pieces}>< rows {rows}>< fault {fault}>< known {known} kept {kept}>< {others}>"
    ),
    requests.ReleaseHold: "ReleaseHold {request} of {asker}: {pubend} {hold}",
    requests.Leave: "Leave {request} of {asker}: {pubend} {shb} joined {join}",
    requests.Done: "Done {request}: {pubend}",
}

_CLIENTS: Final[dict[type, str]] = {
    clients.OpenPubend: "OpenPubend {request}: {name} {advertisement}< {quality}>",
    clients.PubendOpened: "PubendOpened {request}: {pubend}",
    clients.OpenPublisher: "OpenPublisher {request}: {publisher} on {pubend}",
    clients.PublisherOpened: (
        "PublisherOpened {request}: session {session} after {last_sequence} window {window}"
    ),
    clients.Publish: "Publish {request}: {pubend} {publisher}/{first} session {session} {events}",
    clients.Published: "Published {request}: {ticks}",
    clients.Begin: "{kind}< {position}>< {clock}>",
    clients.Home: "{birth} epoch {epoch} at {broker}",
    clients.Governed: "{filter} up to {ends}",
    clients.Moment: "{host} {time}",
    clients.Owed: "since {since}< others {others}>",
    clients.Subscribe: (
        "Subscribe {request}: {subscription} {filter} from {begin}< {durable}>< {order}>"
        " credit {credit}< home {home}>< acked {acked}>< earlier {earlier}>< owed {owed}>"
    ),
    clients.Waiting: "{pubend}: {reason}< after {after}>",
    clients.Subscribed: (
        "Subscribed {request}: after {position}< waits for {waiting}>< home {home}>"
        "< seeks {seeks}>< earlier {earlier}>"
    ),
    clients.Started: "Started {subscription} on {pubend} after {after}",
    clients.Stalled: "Stalled {subscription} on {pubend}<: {reason}>",
    clients.Delivery: "Delivery {subscription} {runs}",
    clients.Progress: "Progress {subscription} {position}",
    clients.Gap: "Gap {subscription} {pubend} [{low}, {high}]",
    clients.Ended: "Ended {subscription} {cause}: {reason}< home {home}>",
    clients.Credit: "Credit {subscription} {events}",
    clients.Ack: "Ack {subscription} {position}",
    clients.SetFilter: "SetFilter {request}: {subscription} {filter}",
    clients.FilterSet: "FilterSet {request}: after {position}",
    clients.Switched: "Switched {subscription} {filter} after {position}",
    clients.Seek: "Seek {request}: {subscription} to {begin}",
    clients.Unsubscribe: "Unsubscribe {request}: {subscription}",
    clients.Unsubscribed: "Unsubscribed {request}",
    clients.ReadLog: "ReadLog {request}: {pubend} [{low}, {high}] {filter}< {form}>",
    clients.ReadPart: (
        "ReadPart {request}: done {done} top {top} released {released}"
        "< {publications}>< rows {rows}>"
    ),
    clients.RetireHost: "RetireHost {request}: {broker}@{cell}",
    clients.HostRetired: "HostRetired {request}",
    clients.ListPartitions: "ListPartitions {request}",
    clients.PartitionTable: "PartitionTable {request}: {entries}",
    clients.Refused: "Refused {request} {cause}: {reason}< at {broker}>< home {home}>",
    staging.Stage: (
        "Stage {request}: {pubend} {writer}/{batch} part {partition} attempt {attempt} #{number} {events}"
    ),
    staging.Staged: "Staged {request}",
    staging.CommitStaged: "CommitStaged {request}: {pubend} {writer}/{batch} {parts}",
    staging.StagedCommitted: "StagedCommitted {request}: [{first}, {last}]< {repeated}>",
    staging.DropStaged: "DropStaged {request}: {pubend} {writer}/{batch}",
    staging.StagedDropped: "StagedDropped {request}",
}

_RECORDS: Final[dict[type, str]] = {
    records.LifeRecord: "life {life}",
    records.HomeRecord: "home {broker}@{cell} δ {delta} v{version}",
    records.NeighbourhoodRecord: "neighbourhood of {own} v{version} {cells}",
    records.PubendRecord: (
        "pubend {pubend} v{announcement_version} ceiling {ceiling} released {released}< gone {gone}>"
    ),
    records.RegimeRecord: "regime {pubend} r{number} from {start} {entries}",
    records.MemberRecord: "member {pubend} {shb} floor {floor} at {time}< {durable}>< {parked}>",
    records.HoldRecord: "hold {pubend} {hold} above {tick}",
    records.LeftRecord: "left {pubend} {shb} joined {join}",
    records.EarlyHostRecord: "early host {pubend} {shb} {known}",
    records.PublisherRecord: "publisher {pubend} {publisher}/{last_sequence} session {session}",
    records.StagedRecord: "staged {pubend} {writer}/{batch} part {partition} attempt {attempt} #{number}",
    records.CommitRecord: "commit {pubend} {writer}/{batch} [{first}, {last}]",
    records.JoinRecord: "join {pubend} {join}< abandoned {abandoned}>",
    records.PlaceRecord: "place {pubend} at {broker}",
    records.RetirementRecord: "retirement {shb} v{version}< back {back}>",
    records.DriftRecord: "{pubend} stood at {stood_at}, merged {merged}, passed {passed}",
    records.SegmentRecord: "{filter} from {time}< up to {ends}>",
    records.SubscriptionRecord: (
        "subscription {subscription} {segments} acked {acked} base {base}< untold {untold}>"
        "< holds {holds}>< birth {birth} epoch {epoch}>"
    ),
    records.LogRow: "{pubend} [{first}, {last}] r{regime}< cv{control_version}> {publications}",
    records.PackedRow: "[{first}, {last}] {publications}",
    records.Store: "stores {record}",
    records.Erase: "erases {key}",
    records.Append: "appends {row}",
    records.AppendPacked: "appends {pubend} [{first}, {last}] r{regime} packed",
    records.Trim: "trims {pubend} up to {up_to}",
}

FORMS: Final[dict[type, str]] = {
    **_STEPS,
    **_OVERLAY,
    **_TABLES,
    **_STREAMS,
    **_CLIENTS,
    **_RECORDS,
}
