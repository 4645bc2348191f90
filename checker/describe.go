package checker

// Info describes a word of a report, for help texts and the reference.
type Info struct {
	Name        string
	Description string // one line
}

// Verdicts lists what a verdict can be.
func Verdicts() []Info {
	return []Info{
		{string(Held), "the history speaks to the property, and keeps it"},
		{string(Violated), "it breaks it; a witness of a few events proves that"},
		{string(Unknown), "it could not be decided, and the reason says why; never folded into held"},
		{string(NotApplicable), "the history cannot speak to it: no tokens, no lease, nothing written, nobody waited"},
	}
}

// Properties lists the properties that Check judges, in its order.
func Properties() []Info {
	return []Info{
		{Mutex, "at most one client believes that it holds"},
		{Lease, "the service makes no second grant while an unexpired, unreleased lease stands"},
		{Token, "grants carry tokens that rise in the order of the grants and never repeat"},
		{Fence, "the resource never accepts an older grant's write after a newer one's"},
		{State, "the protected object behaves as if operations were one at a time"},
		{Release, "only the holder's release frees the lock, and one after a loss says so"},
		{Liveness, "the lock is granted again in bounded time"},
	}
}

// Codes lists the codes of findings, in the order of the constants.
func Codes() []Info {
	return []Info{
		{Late, "a client still believed, more than the grace after its lease, with no notice"},
		{Ghost, "granted, though the caller got no or another answer"},
		{Stuck, "a time in which a lock was wanted, nobody was entitled to it and nobody got it, longer than the bound"},
		{False, "an answer contradicts what the service did"},
		{Lost, "a client lost the lock before it released it"},
		{Again, "a client got a lock that it held, without a release"},
		{Rejected, "the resource rejected a write though it had accepted none of a newer grant"},
		{Workload, "a write was begun outside of a claim: the workload's fault, not the lock's"},
		{Unreleased, "a release got no answer, and an observer still saw its client as the holder"},
	}
}
