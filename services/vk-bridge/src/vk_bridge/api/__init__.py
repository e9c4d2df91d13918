"""What this service answers: the kubelet API of virtual nodes."""
