"""Plans of networks with equal layers that keep to a rule: all layers alike, blocks, or a menu."""
