"""Chaos: real brokers and a real network, both of which fail while events flow.

Theory of operation
-------------------
Brokers of redundant cells run as processes of their own. The network between any two of them can be
cut, in each direction by itself (:mod:`.networks`): by a router between network namespaces
(:mod:`.namespaces`), or, where these are not allowed, by a proxy (:mod:`.proxies`). Publishers and
subscribers are those of the demo, at brokers chosen for chaos (:mod:`.roles`).

A seed draws one fault after the other (:mod:`.faults`): a broker is killed or frozen; all brokers
but one of each cell are killed; a link is cut in one direction or both; all links over an edge of
the tree are cut in one direction; a cell becomes an island or is behind a barrier; up to δ + 1
cells in a row are lost. During a fault temporary subscribers start, and one permanent subscriber
changes its filter (:mod:`.subscriber_pool`, :mod:`.subscribers`). A fault lasts until every stream
that still has a route flows again (:mod:`.flow`, :mod:`.connectivity`). So brokers bypass δ lost
cells while they are lost, and a durable subscription fails over if its broker is down. Streams
without a route wait. Then the fault heals, and all streams must flow again. Both times are
reported, together with the time-outs of brokers and clients (:mod:`.timing`).

At the end the demo's audit reads the records of publishers and subscribers. The verdict is clean
only if no event was lost, duplicated, out of order or spurious, no stream with a route stopped, and
no broker still lists a partition (:mod:`.verdict`).
"""
