"""Neural networks: modules, fused forward passes, GPU kernels, and the switches of the speed optimisations."""
