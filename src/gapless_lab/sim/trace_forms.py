"""The short form of every kind of event, effect, message and record in a trace.

A form is a text with fields in braces. The part between ``<`` and ``>`` is omitted if its first
field is empty, zero or false. A field that is true is shown as its name. :mod:`.trace_format`
defines how values are written. A kind without a form is shown with its name and its fields.
"""

from __future__ import annotations

from typing import Final

from gapless.core import effects, events
from gapless.messages import (
    clients,
    closing,
    mobility,
    operating,
    overlay,
    plans,
    propagation,
    reading,
    records,
    reshape,
    staging,
    streams,
    unicast,
)
from gapless.messages import pubend_requests as requests
from gapless.messages.records import plans as plan_records

__all__ = ["FORMS"]

_STEPS: Final[dict[type, str]] = {
    events.LinkUp: "link to {peer} is up",
    events.LinkDown: "link to {peer} is down",
    events.LinkFull: "link to {peer} is full",
    events.LinkDrained: "link to {peer} has drained",
    events.Received: "from {peer} {packet}",
    events.ClientUp: "{client} connects",
    events.ClientDown: "{client} disconnected",
    events.ClientFull: "{client} is full",
    events.ClientDrained: "{client} has drained",
    events.ClientRequest: "{client} requests {request}",
    events.Stopping: "is stopped",
    events.Written: "write {write_id} is on disk",
    events.Fetched: "fetch {fetch_id} gives {rows}< corrupt {corruption}>< {complete}>",
    effects.Send: "to {peer} {packet}",
    effects.Notify: "notifies {client} {notice}",
    effects.DisconnectClient: "disconnects {client}: {reason}",
    effects.Write: "write {write_id}<: {changes}>",
    effects.Fetch: "fetch {fetch_id} of {pubend} [{low}, {high}]",
}

_OVERLAY: Final[dict[type, str]] = {
    overlay.Term: "t{number}< {broker}>",
    overlay.ShapeVersion: "{term} s{count}",
    overlay.CellMember: "{broker}< {role}>< at {addresses}>",
    overlay.CellEdge: "{cell} {epoch}",
    overlay.CellRecord: (
        "{name} {members} by {edges}< led by {leader}> {term} shape {shape_version} m{member_version}"
    ),
    overlay.RecordVersion: "{cell} {term} shape {shape_version} m{member_version}",
    overlay.RecordPush: "RecordPush {records}",
    overlay.RecordList: "RecordList {versions}",
    overlay.RecordWant: "RecordWant {cells}",
    overlay.ControlFrame: "ControlFrame {inner}",
    overlay.PeerSessionId: "{incarnation}/{number}",
    overlay.Hello: "Hello {own}< received {received}>",
    overlay.Packet: "{sender} #{sequence}: {messages}",
    overlay.TableState: "{direction} v{version}",
    overlay.Heartbeat: "Heartbeat {sequence} echo {echo}< tables {tables}>",
    overlay.RelayProbe: "RelayProbe {number} for {target} by {route}",
    overlay.Relayed: "Relayed {route} at {index}: {inner}",
    overlay.RelayBroken: "RelayBroken {route}",
    overlay.RelayFull: "RelayFull {route}",
    overlay.PubendProperties: "{broker}@{cell} {advertisement}< {quality}>",
    overlay.Announce: "Announce {pubend} v{version} {properties} path {path}< {tombstone}>< sealed {sealed}>",
    overlay.Partition: "{detector}/{counter} of {cells}",
    overlay.PartitionInfo: "PartitionInfo {partition}< {formed}> hops left {hops_left}",
    overlay.NameQuery: "NameQuery {name} by {requester} {number}",
    overlay.NameReply: "NameReply {key} {status}< at {broker}>",
    overlay.Retire: "Retire {broker}@{cell} v{version}< returned {returned_at}>",
    mobility.Superseded: "Superseded {incarnation_key} epoch {epoch} at {broker}",
    mobility.SubscriptionHost: "{incarnation_key} epoch {epoch} at {broker}",
    mobility.FindSubscription: "FindSubscription {name} {key} within {wait_ms} ms",
    mobility.SubscriptionFound: "SubscriptionFound {key} {status}< {host}>< silent {silent}>",
    mobility.DurableEntry: "{name} {host}",
    mobility.CollectSubscriptions: "CollectSubscriptions {key} after {after} within {wait_ms} ms",
    mobility.SubscriptionsCollected: "SubscriptionsCollected {key} {entries}< {more}>< silent {silent}>",
}

_RESHAPING: Final[dict[type, str]] = {
    reshape.OperationId: "{broker}.{counter}",
    reshape.OperationRequestId: "{plan}< step {step}>",
    reshape.ExpectedCell: "{cell} {term} shape {shape_version}",
    reshape.Participant: "{member} of {cell} {term}",
    reshape.OpRequest: "OpRequest {request}: {id} {kind} {cells}< with {broker}>< expects {expected}>",
    reshape.OpReply: "OpReply {request}: {id} {status} {op}< {reason}>< {text}>< led by {leader}>",
    reshape.TakeOverCell: "TakeOverCell {request}:< {cell}> replaces {replaced}",
    reshape.TakeoverReply: "TakeoverReply {request}:< {done}> {term}< {cells}>< {text}>< silent {silent}>",
    reshape.ReadmitBroker: "ReadmitBroker {request}: {broker}",
    reshape.OpPrepare: "OpPrepare {op} {kind} {cells} by {cell} {term} {participants} {records}",
    reshape.OpPrepared: "OpPrepared {op} {record}",
    reshape.OpRefused: "OpRefused {op} {reason}< {record}>< left {left}> locked by {locked_by}",
    reshape.OpSwitch: "OpSwitch {op} by {cell} {term} {records}",
    reshape.OpSwitched: "OpSwitched {op}",
    reshape.OpFinish: "OpFinish {op} by {cell} {term}",
    reshape.OpFinished: "OpFinished {op}",
    reshape.OpAbort: "OpAbort {op} by {cell} {term}< {new_term}>",
    reshape.OpAborted: "OpAborted {op}",
    reshape.OpInquire: "OpInquire {op} {kind} by {cell} {term} of {own} {records}",
    reshape.OpOutcome: "OpOutcome {op} {outcome}< {term}>< {new_term}>< {records}>",
    reshape.Takeover: "Takeover {cells} {term} replaces {replaced}",
    reshape.ReportedLock: "{op} {kind} by {cell} of {own}< {switched}> {participants} {records}",
    reshape.PromisedOutcome: "{op}< {committed}>< {records}>",
    reshape.Promise: (
        "Promise {cells} {term}< fenced by {fenced_by}>< lock {lock}>< {outcomes}>< {records}>"
    ),
    plans.OrderedNewcomer: "{broker} of {cell}",
    plans.NearbyCells: "{cell} to {other} at most {distance}",
    plans.ApplyPlan: (
        "ApplyPlan {request}: {plan} of {cells} with {edges} from {present}< newcomers {newcomers}>"
        "< degree {degree}>< diameter {diameter}>< keeps {keep}>< near {near}>"
    ),
    plans.GetPlan: "GetPlan {request}<: after {after}>",
    plans.PlanStepState: "{kind} {cells}",
    plans.PlanReply: (
        "PlanReply {request}:< {plan}>< {state}> {done}/{total}< {steps}>< next {next}>< {is_reached}>"
        "< {reason}>< found {found}>"
    ),
    plans.AbortPlan: "AbortPlan {request}",
    plans.PlanAborted: "PlanAborted {request}<: {was_under_way}>",
    plans.AreEdgesSettled: "AreEdgesSettled",
    plans.EdgesSettled: "EdgesSettled< {settled}>",
}

_TABLES: Final[dict[type, str]] = {
    propagation.TableId: "{broker}/{direction}",
    propagation.TableRequest: "TableRequest {direction}< has {have} v{version}>",
    propagation.TableStop: "TableStop {direction}",
    propagation.TableFull: (
        "TableFull {table} v{version} part {part}/{parts}"
        "< wants {conjunctions}>< entries {entries}>< known {known}>< late {late}>"
    ),
    # R19: the base version stands for VT's constraint; its entries are shown too
    propagation.TableDelta: (
        "TableDelta {table} v{base} to v{version} if {constraint}"
        "< adds {added}>< removes {removed}>< entries {entries}>< removes {removed_hosts}>"
        "< known {known}>< removes {removed_pubends}>< late {late}>"
    ),
}

_STREAMS: Final[dict[type, str]] = {
    streams.Publication: "{tick} {publisher}/{sequence} {attributes}< {payload}>",
    streams.KnowledgeRange: "[{low}, {high}] e{stream_epoch}< cv{control_version}>< {publications}>",
    streams.BestEffortPosition: "{tick} of {incarnation}",
    streams.Attach: "Attach {pubend} #{number} {kind} {receiver}< {eager}>",
    streams.Attached: "Attached {pubend} #{number} above {sent_up_to}< {relayed}>",
    streams.FeedUnavailable: "FeedUnavailable {pubend} #{number} {reason}",
    streams.Detach: "Detach {pubend} #{number}",
    streams.StreamData: "StreamData {pubend} #{number}< {first}> {knowledge}",
    streams.StreamSilence: "StreamSilence {ranges}",
    streams.StreamEpoch: (
        "StreamEpoch {pubend} e{number} from {start}< over e{base}> {entries}< forgets {forgotten}>"
    ),
    streams.StreamEpochRequest: "StreamEpochRequest {pubend} e{number}",
    streams.Nack: "Nack {pubend} {ranges}",
    streams.Released: "Released {pubend} up to {up_to}",
    streams.Unreadable: "Unreadable {pubend} [{low}, {high}]: {reason}",
    streams.Member: "{shb} joined {membership} at {time}< {durable}>",
    streams.DefineMemberSet: "DefineMemberSet {number} {members}",
    streams.ForgetMemberSet: "ForgetMemberSet {number}",
    streams.AckReport: "AckReport of set {set_number} {acknowledged}",
    streams.AckExpected: "AckExpected {pubend} {tick}< {pressure}>",
    streams.AdvanceRequest: "AdvanceRequest {pubend} {tick}",
    requests.LogHoldId: "{shb}/{subscription}",
    requests.Read: (
        "Read {request} of {requester}: {pubend} [{low}, {high}] {filter}"
        "< log hold {log_hold} above {log_hold_tick}>< joining {joining_member}>< of {former_hosts}>< {form}>"
    ),
    requests.ReadReply: (
        "ReadReply {request}: {pubend} done {done} top {top} released {released}"
        "< last match {last_released_match}>< {ranges}>< rows {rows}>< fault {fault}>"
        "< known {known} retained above {retained_above}>< {others}>"
    ),
    requests.ReleaseLogHold: "ReleaseLogHold {request} of {requester}: {pubend} {log_hold}",
    requests.LeavePubend: "LeavePubend {request} of {requester}: {pubend} {shb} joined {membership}",
    requests.RequestDone: "RequestDone {request}: {pubend}",
    requests.CountEvents: "CountEvents {request} of {requester}: {pubend} up to {ticks}",
    requests.EventCount: "{number} up to {tick}< then {oldest}>",
    requests.EventCounts: "EventCounts {request}: {pubend} of {total}< {counts}>",
    unicast.UnicastRequest: "UnicastRequest {request} of {requester} to {to}: {body}",
    unicast.UnicastReply: "UnicastReply {request}<: {body}>",
    unicast.Walk: "Walk< after {after}>",
    unicast.Walked: "Walked {records}< {more}>",
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
    clients.StartPoint: "{kind}< {position}>< {clock}>",
    clients.HostingReference: "{incarnation_key} epoch {epoch} at {broker}",
    clients.PastFilter: "{filter} up to {ends}",
    clients.HostTime: "{host} {time}",
    clients.StartGuarantees: "{default}< others {by_pubend}>",
    clients.Subscribe: (
        "Subscribe {request}: {subscription} {filter} from {start}< {durable}>< {order}>"
        " credit {credit}< hosting {hosting}>< acked {acked}>< past filters {past_filters}>"
        "< guarantees {start_guarantees}>"
    ),
    clients.PendingStart: "{pubend}: {reason}< after {after}>",
    clients.Subscribed: (
        "Subscribed {request}: after {position}< pending {pending}>< hosting {hosting}>"
        "< seeks {seek_count}>< past filters {past_filters}>< order {order}>"
    ),
    clients.SubscriptionStarted: "SubscriptionStarted {subscription} on {pubend} after {after}",
    clients.Stalled: "Stalled {subscription} on {pubend}<: {reason}>",
    clients.Delivery: "Delivery {subscription} {runs}",
    clients.Progress: "Progress {subscription} {position}",
    clients.Gap: "Gap {subscription} {pubend} [{low}, {high}]",
    clients.Closed: "Closed {subscription} {pubend} at {last}",
    clients.SubscriptionEnded: "SubscriptionEnded {subscription} {cause}: {reason}< hosting {hosting}>",
    clients.Credit: "Credit {subscription} {events}",
    clients.Ack: "Ack {subscription} {position}",
    clients.SetFilter: "SetFilter {request}: {subscription} {filter}",
    clients.FilterSet: "FilterSet {request}: after {position}",
    clients.FilterChanged: "FilterChanged {subscription} {filter} after {position}",
    clients.Seek: "Seek {request}: {subscription} to {start}",
    clients.Unsubscribe: "Unsubscribe {request}: {subscription}",
    clients.LeaveSubscription: "LeaveSubscription {subscription}",
    clients.Unsubscribed: "Unsubscribed {request}",
    clients.FindDurable: "FindDurable {request}: {subscription}",
    clients.DurableFound: "DurableFound {request}<: at {broker}>",
    reading.ReadLog: "ReadLog {request}: {pubend} [{low}, {high}] {filter}< {form}>",
    reading.ReadPart: (
        "ReadPart {request}: done {done} top {top} released {released}"
        "< {publications}>< rows {rows}>"
    ),
    closing.ClosePubend: "ClosePubend {request}: {pubend} {mode}",
    closing.ClosePubendReply: (
        "ClosePubendReply {request}: {pubend} {state} at {last}< for {members}>< {log_holds}>"
    ),
    operating.RetireBroker: "RetireBroker {request}: {broker}@{cell}",
    operating.BrokerRetired: "BrokerRetired {request}",
    operating.ListPartitions: "ListPartitions {request}",
    operating.PartitionTable: "PartitionTable {request}: {entries}",
    clients.Refused: "Refused {request} {cause}: {reason}< at {broker}>< hosting {hosting}>< silent {silent}>",
    staging.StageChunk: (
        "StageChunk {request}: {pubend} {writer}/{batch} part {partition} attempt {attempt} #{number} {events}"
    ),
    staging.ChunkStaged: "ChunkStaged {request}",
    staging.CommitBatch: "CommitBatch {request}: {pubend} {writer}/{batch} {parts}",
    staging.BatchCommitted: "BatchCommitted {request}: [{first}, {last}]< {repeated}>",
    staging.DropBatch: "DropBatch {request}: {pubend} {writer}/{batch}",
    staging.BatchDropped: "BatchDropped {request}",
}

_RECORDS: Final[dict[type, str]] = {
    records.IncarnationRecord: "incarnation {incarnation}",
    records.ConfigurationRecord: "configuration {broker}@{cell} δ {delta} v{version}",
    records.NeighbourhoodRecord: "neighbourhood of {own} v{version} {cells}",
    records.PubendRecord: (
        "pubend {pubend} v{announcement_version} ceiling {ceiling} released {released}"
        "< last event {last_released_event}>< sealed {sealed}>"
    ),
    records.StreamEpochRecord: "stream epoch {pubend} e{number} from {start} {entries}",
    records.TickCeilingRecord: "tick ceiling {ceiling}",
    records.MemberRecord: (
        "member {pubend} {shb} ack floor {ack_floor} at {time}< {durable}>< {inactive}>"
    ),
    records.LogHoldRecord: "log hold {pubend} {log_hold} above {tick}",
    records.EndedMembershipRecord: "ended membership {pubend} {shb} joined {membership}",
    records.TombstoneRecord: "tombstone {pubend} v{version} at {last}",
    records.KnownHostRecord: "known host {pubend} {shb} {known}",
    records.PublisherRecord: "publisher {pubend} {publisher}/{last_sequence} session {session}",
    records.StagedRecord: "staged {pubend} {writer}/{batch} part {partition} attempt {attempt} #{number}",
    records.CommitRecord: "commit {pubend} {writer}/{batch} [{first}, {last}]",
    records.JoinedPubendRecord: "joined pubend {pubend} {membership}< abandoned {abandoned}>",
    records.PubendLocationRecord: "pubend location {pubend} at {broker}",
    records.RetirementRecord: "retirement {shb} v{version}< returned {returned_at}>",
    records.MergeExclusionRecord: (
        "{pubend} excluded after {excluded_after}, merged {merged}, skipped up to {skipped_up_to}"
    ),
    records.FilterSegmentRecord: "{filter} from {time}< up to {ends}>",
    records.SubscriptionRecord: (
        "subscription {subscription} {segments} acked {acked} started after {started_after}"
        "< unconfirmed {unconfirmed_starts}>< log holds {log_holds}>< {incarnation_key} epoch {epoch}>"
    ),
    records.LogRow: "{pubend} [{first}, {last}] e{stream_epoch}< cv{control_version}> {publications}",
    records.PackedRow: "[{first}, {last}] {publications}",
    plan_records.PlannedStep: "{kind} {cells}",
    plan_records.Newcomer: "{broker} of {cell}",
    plan_records.NearCells: "{cell} to {other} at most {distance}",
    plan_records.PlanOrder: (
        "{plan} of {cells} with {edges} from {present}< newcomers {newcomers}>"
        "< degree {degree}>< diameter {diameter}>< keeps {keep}>< near {near}>"
    ),
    plan_records.PlannedCell: "{cell} {term} shape {shape_version}",
    plan_records.NamedCell: "{name} as {cell}",
    records.PlanRecord: (
        "plan {order}: {steps} from #{first}, done {next}< expects {expected}>< names {names}>"
        "< replans {replans}>"
    ),
    records.OperationRecord: (
        "operation {op} {phase} for {request} {kind} by {cell} {term}"
        "< {new_term}>< {participants}>< {records}>"
    ),
    records.LockRecord: (
        "operation lock {op} {kind} {cells} by {coordinator} of {cell} {term}< {switched}>< {passed}>"
        " own {own} {participants} {records}"
    ),
    records.PromiseRecord: "promise {cell} {term}",
    records.PutRecord: "stores {record}",
    records.DeleteRecord: "erases {key}",
    records.AppendRow: "appends {row}",
    records.AppendPackedRow: "appends {pubend} [{first}, {last}] e{stream_epoch} packed",
    records.TrimLog: "trims {pubend} up to {up_to}",
}

FORMS: Final[dict[type, str]] = {
    **_STEPS,
    **_OVERLAY,
    **_RESHAPING,
    **_TABLES,
    **_STREAMS,
    **_CLIENTS,
    **_RECORDS,
}
