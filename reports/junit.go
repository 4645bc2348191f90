package reports

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
)

// JUnit writes cases in the XML that continuous integration reads as tests: a
// suite for each scenario. A violation is a failure, with the report and its
// diagram as text; what proved nothing is an error; what was left out is
// skipped. The format has no standard; this is the part of
// https://github.com/testmoapp/junitxml that GitLab, Jenkins and GitHub's
// actions agree on.
func JUnit(w io.Writer, name string, cases []Case) error {
	doc := junitSuites{Name: name, junitCounts: countJUnit(cases)}
	var order []string
	byScenario := map[string][]Case{}
	for _, c := range cases {
		scenario := "left out"
		if c.Run != nil {
			scenario = cmp.Or(c.Run.Scenario, name)
		}
		if _, known := byScenario[scenario]; !known {
			order = append(order, scenario)
		}
		byScenario[scenario] = append(byScenario[scenario], c)
	}
	for _, scenario := range order {
		group := byScenario[scenario]
		suite := junitSuite{Name: scenario, junitCounts: countJUnit(group)}
		for _, c := range group {
			suite.Cases = append(suite.Cases, junitCaseOf(scenario, c))
		}
		doc.Suites = append(doc.Suites, suite)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(doc); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

type junitSuites struct {
	XMLName xml.Name `xml:"testsuites"`
	Name    string   `xml:"name,attr"`
	junitCounts
	Suites []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name string `xml:"name,attr"`
	junitCounts
	Cases []junitCase `xml:"testcase"`
}

type junitCounts struct {
	Tests    int    `xml:"tests,attr"`
	Failures int    `xml:"failures,attr"`
	Errors   int    `xml:"errors,attr"`
	Skipped  int    `xml:"skipped,attr"`
	Time     string `xml:"time,attr"`
}

type junitCase struct {
	Name       string             `xml:"name,attr"`
	Class      string             `xml:"classname,attr"`
	Time       string             `xml:"time,attr"`
	Properties *junitPropertyList `xml:"properties,omitempty"`
	Failure    *junitProblem      `xml:"failure"`
	Error      *junitProblem      `xml:"error"`
	Skipped    *junitProblem      `xml:"skipped"`
}

type junitPropertyList struct {
	Property []junitProperty `xml:"property"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitProblem struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr,omitempty"`
	Text    string `xml:",cdata"`
}

func countJUnit(cases []Case) junitCounts {
	var took time.Duration
	for _, c := range cases {
		took += c.duration()
	}
	return junitCounts{
		Tests: len(cases), Failures: countOf(cases, Failed), Errors: countOf(cases, Errored), Skipped: countOf(cases, Skipped),
		Time: seconds(took),
	}
}

func junitCaseOf(scenario string, c Case) junitCase {
	j := junitCase{Name: c.name(), Class: "lockcheck." + scenario, Time: seconds(c.duration())}
	if r := c.Run; r != nil {
		j.Properties = &junitPropertyList{}
		for _, p := range []junitProperty{{"seed", fmt.Sprint(r.Seed)}, {"folder", r.Dir}, {"again", r.Replay}} {
			if p.Value != "" {
				j.Properties.Property = append(j.Properties.Property, p)
			}
		}
	}
	problem := &junitProblem{Message: c.Message, Text: xmlText(c.Text)}
	switch c.Outcome {
	case Failed:
		problem.Type = "violation"
		if c.Run.Status != Violation {
			problem.Type = "not as expected"
		}
		j.Failure = problem
	case Errored:
		problem.Type = string(c.Run.Status)
		j.Error = problem
	case Skipped:
		j.Skipped = problem
	}
	return j
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

// xmlText drops what cannot be in XML, not even escaped.
func xmlText(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0xFFFE || r == 0xFFFF {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}
