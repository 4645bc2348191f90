package scenarios

import "strings"

func scenarioFields(s *Scenario) []field {
	return []field{
		{"name", "the scenario's name: small letters, digits and dashes", true, text(&s.Name)},
		{"summary", "what happens, in one line", false, text(&s.Summary)},
		{"why", "why the scenario exists", false, text(&s.Why)},
		{"claims", "ids of the claims and public bug reports that it is about", false, names(&s.Claims, nil)},
		{"clients", "names of the clients, each a process of its own", false, names(&s.Clients, nil)},
		{"key", "name of the lock; k if left out", false, scalarText(&s.Key)},
		{"ttl", "lease to ask for; 1s if left out", false, duration(&s.TTL)},
		{"backends", "backends that it makes sense for; all if left out", false, names(&s.Backends, nil)},
		{"resources", "what the lock protects, a run each, unless the user chooses; the backend's default if left out", false, names(&s.Resources, nil)},
		{"as", "clients that use another backend, on the same servers: {C: redis}", false, table(&s.As, nil, nil)},
		{"settings", "settings of the backend's servers, such as tcp_keepalives_idle: \"1\" for PostgreSQL", false, table(&s.Settings, nil, nil)},
		{"figures", "what to measure: " + strings.Join(figureNames(), ", "), false, names(&s.Figures, nil)},
		{"violates", "property whose violation `reproduce` asserts; left out for controls", false, word(&s.Violates, Properties())},
		{"steps", "what happens, one after the other", false,
			objects(&s.Steps, "a step", stepFields, func(s *Step, line int) { s.Line = line })},
		{"workload", "what the clients do, each by itself, again and again: instead of clients and steps", false,
			mapping(&s.Workload, "a workload", workloadFields, func(w *Workload, line int) { w.Line = line })},
		{"nemesis", "faults that come at their moments, while the workload or the steps go on", false,
			objects(&s.Nemesis, "an entry of the nemesis", injectionFields, func(i *Injection, line int) { i.Line = line })},
		{"expect", "what must come out; later entries override earlier ones", false,
			objects(&s.Expect, "an expectation", expectationFields, func(e *Expectation, line int) { e.Line = line })},
		{"bound", "time in which the lock must be granted again, where grants state no lease, as 4 ttl; none if left out", false, duration(&s.Bound)},
		{"excuse", "properties that do not count, since a correct lock may break them here", false,
			objects(&s.Excuse, "an excuse", excuseFields, func(e *Excuse, line int) { e.Line = line })},
	}
}

func excuseFields(e *Excuse) []field {
	return []field{
		{"properties", "properties whose violation does not count, unless the user asks for them", true, names(&e.Properties, nil)},
		{"without", "only for clients that have none of these capabilities, such as token or lost", false, names(&e.Without, nil)},
		{"why", "the reason, in one line", true, text(&e.Why)},
	}
}

func stepFields(s *Step) []field {
	return []field{
		{"client", "who does it", false, text(&s.Client)},
		{"do", "operation of the client", false, word(&s.Do, Operations())},
		{"key", "name of the lock; the scenario's if left out", false, scalarText(&s.Key)},
		{"value", "value to write", false, scalarText(&s.Value)},
		{"within", "acquire: how long to wait for the lock, 0s for a single try; others: deadline for the answer; 10s if left out", false, within(&s.Within)},
		{"queue", "send the request without waiting for the answer: the client is under a fault; a later await collects it", false, boolean(&s.Queue)},
		{"may_fail", "a failure of this step does not make the run inconclusive", false, boolean(&s.MayFail)},
		{"refused", "the acquire or the write must not succeed: the run is inconclusive if it does", false, boolean(&s.Refused)},
		{"fault", "kind of fault to inject; the step ends when it is proved to be in effect", false, text(&s.Fault)},
		{"on", "targets of the fault: clients, servers, resource, or roles: random, all, clients, servers, leader, primary, followers, majority, minority", false, names(&s.On, nil)},
		{"with", "parameters of the fault", false, table(&s.With, nil, nil)},
		{"heal", "kind of fault to end; faults still in effect after the last step are ended then", false, text(&s.Heal)},
		{"await", "client whose queued operation to wait for, kind of fault that the nemesis is to have injected, or leader: another one than before the last fault", false, text(&s.Await)},
	}
}

// within gives *dst its default until the file says otherwise, so that 0s can
// be told from nothing.
func within(dst *Duration) value {
	*dst = Duration{Time: DefaultWithin}
	return duration(dst)
}

func expectationFields(e *Expectation) []field {
	return []field{
		{"backends", "backends that it is about; all if left out", false, names(&e.Backends, nil)},
		{"resources", "resources that it is about; all if left out", false, names(&e.Resources, nil)},
		{"locks", "what client programs say that they test, as redsync; all if left out", false, names(&e.Locks, nil)},
		{"since", "only of these versions of server software and later: {etcd: \"3.5\"}", false, table(&e.Since, nil, nil)},
		{"before", "only of versions of server software before these", false, table(&e.Before, nil, nil)},
		{"properties", "the verdict on each property", false, table(&e.Properties, Properties(), Verdicts())},
		{"figures", "between what figures are, as 1..1.2 or ..1.5 ttl", false, table(&e.Figures, figureNames(), nil)},
		{"findings", "facts that must be found, or none of them", false, table(&e.Findings, Findings(), []string{Found, None})},
		{"status", "how the run as a whole comes out", false, word(&e.Status, Statuses())},
		{"why", "the reason, in one line", false, text(&e.Why)},
	}
}

func suiteFields(s *Suite) []field {
	return []field{
		{"name", "the suite's name: small letters, digits and dashes", true, text(&s.Name)},
		{"summary", "what it is for, in one line", false, text(&s.Summary)},
		{"scenarios", "names of scenarios, or files relative to this one", true, names(&s.Scenarios, &s.lines)},
	}
}
