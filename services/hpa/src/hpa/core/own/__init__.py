"""What neither Kubernetes nor KEDA can say: windows in time, time to drain, what is idle."""
