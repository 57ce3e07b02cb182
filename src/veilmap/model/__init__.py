"""The map: propagation laws over obstacles, its gradients, offsets and residual field."""
