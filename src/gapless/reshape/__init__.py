"""Reshape: operations on the tree, takeover of cells, and the durable step of this broker (R13)."""
