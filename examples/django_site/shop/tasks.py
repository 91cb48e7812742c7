from __future__ import annotations

from django.db.models import F

from shop.models import Customer

try:
    from django.tasks import task
except ImportError:  # before Django 6.0
    from django_tasks import task


@task(queue_name="mail")
def send_welcome(customer_id: int) -> str:
    customer = Customer.objects.get(id=customer_id)
    Customer.objects.filter(id=customer_id).update(welcomed=F("welcomed") + 1)
    return f"welcome {customer.email}"
