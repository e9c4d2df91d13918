"""From a policy and what is heard to a size, whichever kind the policy is of."""
