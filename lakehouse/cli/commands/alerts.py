"""`lakehouse alerts`: lists the firing alerts, and sends a test message to the webhook."""

import click

from lakehouse.cli.context import settings_in_force
from lakehouse.cli.output import print_grid, show, tell
from lakehouse.core.errors import Refused, Transient
from lakehouse.core.text import utc_text
from lakehouse.engine.lake import open_lake

_NO_WEBHOOK = (
    "alerts: no webhook is set. Use LAKEHOUSE_ALERT_URL for the address that Slack or Teams shows, "
    "and start `lakehouse up` again"
)


@click.group("alerts", invoke_without_command=True, epilog="Example: lakehouse alerts test")
@click.pass_context
def alerts_command(context: click.Context) -> None:
    """List the firing alerts. Does not start a JVM.

    While LAKEHOUSE_ALERT_URL is set, a sensor of `lakehouse up` looks for failing checks, health
    scores below 50, quarantined records, late vacuums and late inventories. It sends a message to
    the webhook when an alert begins, and another one when the alert is over.
    """
    if context.invoked_subcommand is not None:
        return
    from lakehouse.engine.metrics.alert_delivery import all_alerts

    settings = settings_in_force()
    alerts = [each for each in all_alerts(open_lake(settings).store) if not each.is_over]
    if not alerts and not settings.alert_url:
        raise Refused(_NO_WEBHOOK)
    if not alerts:
        show("no alert is firing")
        return
    rows = [
        (utc_text(each.since_ms), "yes" if each.is_sent else "no", each.subject, each.sentence)
        for each in alerts
    ]
    print_grid(("since", "sent", "alert", ""), rows)
    if not settings.alert_url:
        tell(f"{_NO_WEBHOOK}. Without a webhook, nothing updates this list")


@alerts_command.command("test", epilog="Example: lakehouse alerts test")
def test_command() -> None:
    """Send a test message to the webhook."""
    from lakehouse.core.metrics.alerts import trial_message
    from lakehouse.engine.metrics.alert_delivery import send

    settings = settings_in_force()
    if not settings.alert_url:
        raise Refused(_NO_WEBHOOK)
    if problem := send(settings.alert_url, trial_message(lake=settings.root)):
        raise Transient(
            f"alerts: the webhook did not accept the message: {problem}. Check the address in "
            "LAKEHOUSE_ALERT_URL, then try again"
        )
    show("delivered")
