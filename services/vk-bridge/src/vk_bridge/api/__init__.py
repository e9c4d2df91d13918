"""The API that this service serves: the kubelet API of virtual nodes."""
