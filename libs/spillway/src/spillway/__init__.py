"""What Spillway's services share: values, events, their wire form, and one door per outside thing."""
