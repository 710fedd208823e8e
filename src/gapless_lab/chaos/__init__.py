"""Chaos: real brokers with a real network between them, both of which fail while events flow.

Theory of operation
-------------------
Brokers of redundant cells run as processes of their own. Between any two of them there is something
that can be cut, in each direction by itself (:mod:`.networks`): a router between network namespaces
(:mod:`.namespaces`), or, where these are not allowed, a proxy (:mod:`.proxies`). Publishers and
subscribers are those of the demo, at places chosen for it (:mod:`.roles`).

A seed draws one fault after the other (:mod:`.faults`): a broker is killed or frozen, all but one of each
cell are killed, a link is cut in one direction or both, all links over an edge of the tree are in one, a cell
becomes an island or is behind a barrier, up to δ + 1 cells in a row are lost. While a fault lasts guests
subscribe anew, and one of those who are there changes its filter (:mod:`.subscriber_pool`, :mod:`.subscribers`). A fault
stays until every stream that still has a way flows again (:mod:`.flow`, :mod:`.connectivity`): who bypasses δ lost
cells has to do so while they are lost, and a durable subscription whose broker is gone has to flee. Where there
is no way, streams wait. Then it heals, and all streams must flow again. How long both took is reported, to be
read against what brokers and clients are told about patience (:mod:`.timing`).

In the end the demo's audit reads what publishers and subscribers wrote down. The verdict is clean only
if nothing was lost, doubled, out of order or uncalled for, no stream that had a way stood still, and no
broker still lists a partition (:mod:`.verdict`).
"""
