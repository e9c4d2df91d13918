"""A label that is forced into every selector of a query: what is asked, and what is refused."""

import pytest

from hpa.core.series import (
    FUNCTIONS,
    QUERY_CHARACTERS_MAX,
    QUERY_PARTS_MAX,
    QUERY_WORDS_MAX,
    QueryRefused,
    confine_query,
)

L = 'namespace="shop"'
FORCED = (
    pytest.param("a", f"a{{{L}}}", id="a name"),
    pytest.param('a{x="1",y=~"{.}"}', f'a{{{L},x="1",y=~"{{.}}"}}', id="matchers, and brackets in a text"),
    pytest.param('{__name__=~".+"}', f'{{{L},__name__=~".+"}}', id="any name"),
    pytest.param('{"my.metric"}', f'{{{L},__name__="my.metric"}}', id="a name in quotes"),
    pytest.param("rate(a[5m] offset 1h)", f"rate(a{{{L}}}[5m] offset 1h)", id="a range"),
    pytest.param("max_over_time(a[1h:1m])", f"max_over_time(a{{{L}}}[1h:1m])", id="a subquery"),
    pytest.param("sum by (x)(a) / on (x) b", f"sum by (x)(a{{{L}}}) / on (x) b{{{L}}}", id="labels are no names"),
    pytest.param("topk(scalar(k), a)", f"topk(scalar(k{{{L}}}), a{{{L}}})", id="a parameter"),
    pytest.param("a @ 1700000000 + a @ end()", f"a{{{L}}} @ 1700000000.000 + a{{{L}}} @ end()", id="at a time"),
    pytest.param("-(a and b unless c)", f"-(a{{{L}}} and b{{{L}}} unless c{{{L}}})", id="sets"),
    pytest.param(
        'label_replace(a, "namespace", "{}", "x", "(.*)")',
        f'label_replace(a{{{L}}}, "namespace", "{{}}", "x", "(.*)")',
        id="another label's text as this one's: of its own series",
    ),
    pytest.param(r'a{x=~"5\\d"}', rf'a{{{L},x=~"5\\d"}}', id="escapes stay"),
    pytest.param("a{x='\" } + bank{y=\"'}", f"a{{{L},x='\" }} + bank{{y=\"'}}", id="quotes in a text end nothing"),
    pytest.param('a{x="-0-"}', f'a{{{L},x="-0-"}}', id="what texts are while it is printed"),
    pytest.param('a{namespace="shop"}', f'a{{{L},namespace="shop"}}', id="its own namespace"),
    pytest.param('a{namespace=~"bank|.*"}', f'a{{{L},namespace=~"bank|.*"}}', id="both must hold"),
    pytest.param("1 + 2", "1 + 2", id="no series"),
)


@pytest.mark.parametrize(("query", "expected"), FORCED)
def test_each_selector_gets_the_label(query: str, expected: str) -> None:
    """But for its blanks."""
    assert confine_query(query, "namespace", "shop").split() == expected.split()


REFUSED = (
    pytest.param(
        'sum(a{namespace="bank"})', "namespace of 'bank': expected 'shop', or no namespace", id="another namespace"
    ),
    pytest.param('a{"namespace"="bank"}', "namespace of 'bank'", id="quoted"),
    pytest.param('a{namespace!="shop"}', "namespace of 'shop'", id="not its own"),
    pytest.param('a{x="1" or namespace="bank"}', "`or` inside a selector", id="alternatives"),
    pytest.param('a{x="1"} # }', "a comment", id="a comment"),
    pytest.param("a @ NaN", "@ NaN: expected a time", id="no time"),
    pytest.param("a @1e308", "@ 1e308: expected a time", id="a time that never comes"),
    pytest.param("sum(a", "expected PromQL", id="no query"),
    pytest.param("", "expected PromQL", id="empty"),
    pytest.param("a default b", "expected PromQL", id="of another language"),
    pytest.param("a" * (QUERY_CHARACTERS_MAX + 1), "4001 characters: expected at most 4000", id="too long"),
    pytest.param(f"a{{{'x=1,' * 60}}}", "243 words and signs: expected at most 200", id="too much"),
    pytest.param("a" + "+a" * 33, "33 operators and parentheses: expected at most 32", id="a long chain"),
    pytest.param("a" + " == a" * 33, "33 operators and parentheses: expected at most 32", id="comparisons"),
    pytest.param("a" + " OR a" * 33, "33 operators and parentheses: expected at most 32", id="sets, in capitals"),
    pytest.param("-" * 33 + "a", "33 operators and parentheses: expected at most 32", id="signs before it"),
    pytest.param("(" * 33 + "a" + ")" * 33, "33 operators and parentheses: expected at most 32", id="nested"),
    pytest.param(r'a{x=~"\\w{500}"}', "expressions of weight 303620: expected at most 2000", id="a large class"),
    pytest.param('a{x!~"((.{50}){50}){20}"}', "expected at most 2000", id="repetitions in repetitions"),
    pytest.param('a{x=~"(?i:[b-d]{99})"}', "expected at most 2000", id="flags"),
    pytest.param(r'a{x=~"\x5cw\x7b500}"}', r"\x in a regular expression: expected no escape", id="written otherwise"),
    pytest.param("a{" + 'x=~"b",' * 20 + "}", "expected at most 2000", id="many regular expressions"),
    pytest.param("info(up)", "function info: expected one that reads its arguments alone", id="labels of target_info"),
    pytest.param(
        'count by (v) (info(label_replace(up, "job", "bank", "", ""), {v=~".+"}))', "function info", id="inside"
    ),
    pytest.param("a{x=`'`}" + "{}" * 3, "expected PromQL", id="brackets of nothing"),
)


@pytest.mark.parametrize(("query", "words"), REFUSED)
def test_what_cannot_be_confined_is_refused_and_says_why(query: str, words: str) -> None:
    with pytest.raises(QueryRefused) as refused:
        confine_query(query, "namespace", "shop")
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "query",
    [
        "a" + "+a" * QUERY_PARTS_MAX,
        "(" * QUERY_PARTS_MAX + "a" + ")" * QUERY_PARTS_MAX,
        "a{" + 'x="1",' * ((QUERY_WORDS_MAX - 3) // 4) + "}",
    ],
)
def test_as_much_as_may_be_is_confined(query: str) -> None:
    assert L in confine_query(query, "namespace", "shop")


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_each_function_of_the_list_is_one_of_promql(name: str) -> None:
    """The parser knows it: with wrong arguments it says which are expected."""
    with pytest.raises(QueryRefused, match=rf"in call to (function )?'{name}'"):
        confine_query(f"{name}({', '.join('9' * 9)})", "namespace", "shop")


def test_a_value_that_would_end_its_text_is_refused() -> None:
    for value in ('shop"', 'shop"} or a{x="', "shop\\"):
        with pytest.raises(QueryRefused):
            confine_query("a", "namespace", value)


CPU = 'rate(container_cpu_usage_seconds_total{pod=~"web-[a-z0-9]{8,10}-[a-z0-9]{5}",container!=""}[3m])'
ASKED = 'kube_pod_container_resource_requests{pod=~"web-.*",resource="cpu"}'
ISTIO = 'istio_requests_total{destination_workload="web",response_code!~"5.*",reporter="destination"}'
USUAL = (
    'sum(rate(http_requests_total{deployment="my-deployment"}[2m]))',
    'avg(http_requests_per_second{app="web",namespace="shop"})',
    'sum(rate(nginx_ingress_controller_requests{ingress="web",status=~"2..|3.."}[1m])) by (ingress)',
    'histogram_quantile(0.95, sum(rate(http_request_duration_seconds_bucket{job=~"api-.+"}[5m])) by (le))',
    '100 - (avg by (instance) (rate(node_cpu_seconds_total{mode="idle"}[5m])) * 100)',
    'sum(kafka_consumergroup_lag{consumergroup=~"orders-[a-z0-9]{1,10}"}) / scalar(count(up{job="orders"} == 1))',
    r'max_over_time(sum(rabbitmq_queue_messages_ready{queue=~"^mail\\.(high|low)$"})[10m:1m]) or vector(0)',
    r'sum(increase(celery_tasks_total{state!="SUCCESS",name=~"tasks\\.\\w+"}[5m])) > bool 100',
    f"clamp_min(sum({CPU}) / sum({ASKED}), 0.1)",
    f"sum(rate({ISTIO}[1m] offset 5m)) / on() group_left() count(kube_pod_status_phase{{phase='Running'}} == 1)",
    " + ".join(f'sum(rate(requests_total{{app="shop-{index}"}}[5m]))' for index in range(8)),
    'sum(up{job=~"' + "|".join(f"service-{index:03}" for index in range(100)) + '"})',
)


@pytest.mark.parametrize("query", USUAL)
def test_what_people_usually_ask_is_confined(query: str) -> None:
    """Queries as KEDA's documentation and those of exporters have them, and two long ones."""
    assert L in confine_query(query, "namespace", "shop")
